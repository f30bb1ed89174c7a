//! The server of the benchmarks on the official Rust SDK, rmcp.
//!
//!     server http | http-stream | session | session-stream | stdio | one [TOOLS]
//!
//! `http` keeps nothing, `session` has sessions; they answer in JSON, or in event streams. `one` is
//! stdio with one tool.

use std::{env, sync::Arc};

use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler, ServiceExt,
    handler::server::{router::tool::ToolRouter, tool::ToolRoute, wrapper::Parameters},
    model::{
        CallToolResult, ContentBlock, ProgressNotificationParam, RequestMetaObject,
        ServerCapabilities, ServerConfig, Tool,
    },
    schemars, tool, tool_handler, tool_router,
    transport::{
        stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde_json::{Value, json};

const TOTAL: u32 = 10;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Pair {
    a: i64,
    b: i64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

#[derive(Clone)]
struct Bench {
    tool_router: ToolRouter<Self>,
    blob: Arc<String>,
}

fn answer(said: String, value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(said)]);
    result.structured_content = Some(json!({ "result": value }));
    result
}

#[tool_router]
impl Bench {
    #[tool(description = "Add two numbers.")]
    async fn add(&self, Parameters(Pair { a, b }): Parameters<Pair>) -> CallToolResult {
        answer((a + b).to_string(), json!(a + b))
    }

    #[tool(description = "Add two numbers.")]
    fn add_sync(&self, Parameters(Pair { a, b }): Parameters<Pair>) -> CallToolResult {
        answer((a + b).to_string(), json!(a + b))
    }

    #[tool(description = "How long a text is.")]
    async fn length(&self, Parameters(Text { text }): Parameters<Text>) -> CallToolResult {
        answer(text.len().to_string(), json!(text.len()))
    }

    #[tool(description = "A mebibyte.")]
    async fn blob(&self) -> CallToolResult {
        answer(self.blob.to_string(), json!(*self.blob))
    }

    #[tool(description = "Ten steps, each reported.")]
    async fn steps(
        &self,
        meta: RequestMetaObject,
        client: Peer<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let token = meta
            .get_progress_token()
            .ok_or(ErrorData::invalid_params("no progress token", None))?;
        for step in 1..=TOTAL {
            let progress = ProgressNotificationParam::new(token.clone(), step as f64)
                .with_total(TOTAL as f64);
            let _ = client.notify_progress(progress).await;
        }
        Ok(answer("done".into(), json!("done")))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Bench {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

fn build(way: &str, more: usize) -> Bench {
    let mut router = Bench::tool_router();
    if way == "one" {
        for name in ["add_sync", "length", "blob", "steps"] {
            router.remove_route(name);
        }
    }
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "default": 3},
        },
        "required": ["city"],
    });
    for nth in 0..more {
        let tool = Tool::new(
            format!("tool_{nth:05}"),
            "The highest temperatures of the coming days.",
            schema.as_object().unwrap().clone(),
        );
        router.add_route(ToolRoute::new_dyn(tool, |_| {
            Box::pin(async { Ok(answer(String::new(), json!("")).into()) })
        }));
    }
    Bench { tool_router: router, blob: Arc::new("x".repeat(1024 * 1024)) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = env::args().collect();
    let way = given[1].clone();
    let more = given.get(2).map_or(0, |number| number.parse().unwrap());
    let server = build(&way, more);
    if way == "stdio" || way == "one" {
        server.serve(stdio()).await?.waiting().await?;
        return Ok(());
    }
    let config = StreamableHttpServerConfig::default()
        .with_json_response(!way.contains("stream"))
        .with_legacy_session_mode(!way.contains("http"));
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(LocalSessionManager::default()),
        config,
    );
    let router = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}
