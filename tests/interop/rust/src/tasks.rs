//! The tasks of the official Rust SDK: a server whose tools run as tasks, and a client of
//! tests/interop/tasks/our_server.py.
//!
//! Rules: the client judges nothing; it plays the scenarios of tests/interop/tasks/client_mcp_1.py
//! under the same names. It has the extension of 2026-07-28 alone: rmcp has dropped the tasks of
//! 2025-11-25.

use std::{collections::BTreeMap, process::Stdio, sync::Arc, time::Duration};

use rmcp::{
    ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, RoleServer, ServerHandler, ServiceError,
    ServiceExt,
    model::*,
    service::{RequestContext, RunningService},
    task_manager::{TaskExit, TaskManager, TaskOptions},
    transport::{
        StreamableHttpClientTransport, TokioChildProcess, stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde_json::{Value, json};
use tokio::process::Command;

const SCENARIO: Duration = Duration::from_secs(30);
const CHAPTER: Duration = Duration::from_millis(200);
const POLL_MS: u64 = 100;
const RELATED: &str = "io.modelcontextprotocol/related-task";

type Error = Box<dyn std::error::Error + Send + Sync>;
type Running = RunningService<RoleClient, ClientConfig>;

fn wire<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("as the schema has it")
}

// ---------------------------------------------------------------- the client

async fn connect(spec: &Value, declares: bool) -> Result<Running, Error> {
    let mut capabilities = json!({"elicitation": {"form": {}}});
    if declares {
        capabilities["extensions"] = json!({TASKS_EXTENSION_ID: {}});
    }
    let config = ClientConfig::new(wire(capabilities), Implementation::new("interop", "1"));
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: None,
    };
    if let Some(url) = spec["http"].as_str() {
        let transport = StreamableHttpClientTransport::from_uri(url);
        return Ok(config.serve_with_lifecycle(transport, lifecycle).await?);
    }
    let words: Vec<&str> = spec["stdio"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stderr(Stdio::inherit());
    Ok(config.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?)
}

async fn call(client: &Running, name: &str, arguments: Value) -> Result<CallToolResponse, ServiceError> {
    let given = arguments.as_object().cloned().unwrap_or_default();
    client.call_tool_once(CallToolRequestParams::new(name.to_string()).with_arguments(given)).await
}

async fn start(client: &Running, name: &str, arguments: Value) -> Result<Task, Error> {
    match call(client, name, arguments).await? {
        CallToolResponse::Task(created) => Ok(created.task),
        other => Err(format!("no task, but {other:?}").into()),
    }
}

/// Poll a task to its end; its statuses, and the input requests, which are answered.
async fn followed(client: &Running, task: &Task) -> Result<Value, Error> {
    let (mut statuses, mut asked): (Vec<Value>, Vec<Value>) = Default::default();
    let id = task.task_id.clone();
    loop {
        let seen = client.peer().get_task(GetTaskParams::new(id.clone())).await?.task;
        statuses.push(serde_json::to_value(seen.status())?);
        match seen.payload {
            TaskPayload::InputRequired { input_requests } => {
                let mut answers = BTreeMap::new();
                for (key, request) in input_requests {
                    asked.push(serde_json::to_value(request)?["params"]["message"].clone());
                    answers.insert(key, json!({"action": "accept", "content": {"value": 3}}));
                }
                let update = wire(json!({"taskId": id, "inputResponses": answers}));
                acknowledged(client.peer().update_task(update).await)?;
            }
            TaskPayload::Completed { result } => {
                let result = Value::Object(result);
                return Ok(json!({
                    "taskId": id, "statuses": statuses, "asked": asked,
                    "text": result["content"][0]["text"],
                    "isError": result["isError"].as_bool().unwrap_or_default(),
                    "related": result["_meta"].get(RELATED).cloned().unwrap_or(json!({})),
                }));
            }
            TaskPayload::Failed { error } => {
                return Ok(json!({"taskId": id, "statuses": statuses, "error": error}));
            }
            TaskPayload::Cancelled => return Ok(json!({"taskId": id, "statuses": statuses})),
            _ => tokio::time::sleep(Duration::from_millis(task.poll_interval_ms.unwrap_or(POLL_MS))).await,
        }
    }
}

/// rmcp takes an acknowledgement with `_meta` for the result of a tool, and calls it unexpected.
fn acknowledged(outcome: Result<(), ServiceError>) -> Result<(), ServiceError> {
    match outcome {
        Err(ServiceError::UnexpectedResponse) => Ok(()),
        other => other,
    }
}

fn code<T: std::fmt::Debug>(outcome: Result<T, ServiceError>) -> Result<Value, Error> {
    match outcome {
        Err(ServiceError::McpError(error)) => Ok(json!({"code": error.code.0})),
        other => Err(format!("no error of the server, but {other:?}").into()),
    }
}

async fn play(client: &Running, spec: &Value, scenario: &str) -> Result<Value, Error> {
    match scenario {
        "created" => Ok(serde_json::to_value(start(client, "book", json!({"topic": "tea"})).await?)?),
        "result" => {
            let task = start(client, "book", json!({"topic": "tea"})).await?;
            followed(client, &task).await
        }
        "input" => {
            let task = start(client, "order", json!({"title": "Tea"})).await?;
            followed(client, &task).await
        }
        "cancelled" => {
            let task = start(client, "forever", json!({})).await?;
            acknowledged(client.peer().cancel_task(CancelTaskParams::new(task.task_id.clone())).await)?;
            followed(client, &task).await
        }
        "error" => {
            let task = start(client, "misprint", json!({})).await?;
            followed(client, &task).await
        }
        "unknown" => code(client.peer().get_task(GetTaskParams::new("no-such-task")).await),
        "plain" => {
            let other = connect(spec, false).await?;
            let seen = code(call(&other, "order", json!({"title": "Tea"})).await);
            other.cancel().await?;
            seen
        }
        "resumed" => {
            let task = start(client, "book", json!({"topic": "tea"})).await?;
            let other = connect(spec, true).await?;
            let seen = followed(&other, &task).await;
            other.cancel().await?;
            seen
        }
        _ => Err("there is no such scenario".into()),
    }
}

pub async fn drive(text: &str) -> Result<(), Box<dyn std::error::Error>> {
    let spec: Value = serde_json::from_str(text)?;
    let client = connect(&spec, true).await.map_err(|error| error.to_string())?;
    for scenario in spec["scenarios"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let line = match tokio::time::timeout(SCENARIO, play(&client, &spec, scenario)).await {
            Err(_) => json!({"scenario": scenario, "failed": "took too long"}),
            Ok(Err(error)) => json!({"scenario": scenario, "failed": error.to_string()}),
            Ok(Ok(seen)) => json!({"scenario": scenario, "seen": seen}),
        };
        println!("{line}");
    }
    client.cancel().await?;
    Ok(())
}

// ---------------------------------------------------------------- the server

#[derive(Clone, Default)]
struct Press {
    tasks: TaskManager,
}

fn said(words: &str, is_error: bool) -> CallToolResult {
    wire(json!({"content": [{"type": "text", "text": words}], "isError": is_error}))
}

impl ServerHandler for Press {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
            .with_server_info(Implementation::new("press", "1.0"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let field = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
        Ok(wire(json!({"resultType": "complete", "tools": [
            {"name": "book", "inputSchema": field("topic")},
            {"name": "order", "inputSchema": field("title")},
            {"name": "forever", "inputSchema": {"type": "object"}},
            {"name": "misprint", "inputSchema": {"type": "object"}},
            {"name": "fire", "inputSchema": {"type": "object"}},
        ]})))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let given = Value::Object(request.arguments.clone().unwrap_or_default());
        if !context.client_capabilities().is_some_and(|able| able.supports_tasks()) {
            return Ok(said("without a task", false).into());
        }
        let name = request.name.to_string();
        let options = TaskOptions::new().with_poll_interval_ms(POLL_MS);
        let task = self.tasks.spawn(options, move |ctx| {
            Box::pin(async move {
                match name.as_str() {
                    "book" => {
                        ctx.set_status_message("chapter 1");
                        tokio::time::sleep(CHAPTER).await;
                        let topic = given["topic"].as_str().unwrap_or_default();
                        Ok(said(&format!("a book about {topic}"), false))
                    }
                    "order" => {
                        let title = given["title"].as_str().unwrap_or_default();
                        let answer = ctx.request_input("copies", wire(json!({
                            "method": "elicitation/create",
                            "params": {
                                "mode": "form",
                                "message": format!("How many copies of {title}?"),
                                "requestedSchema": {
                                    "type": "object",
                                    "properties": {"value": {"type": "integer"}},
                                    "required": ["value"],
                                },
                            },
                        }))).await?;
                        Ok(said(&format!("{} copies of {title}", answer["content"]["value"]), false))
                    }
                    "misprint" => Ok(said("out of paper", true)),
                    "fire" => Err(TaskExit::Error(ErrorData::internal_error("the press burns", None))),
                    _ => {
                        ctx.cancelled().await;
                        Err(TaskExit::Cancelled)
                    }
                }
            })
        });
        Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
    }

    async fn get_task(&self, request: GetTaskParams, _: RequestContext<RoleServer>) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(&self, request: UpdateTaskParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

pub async fn serve(way: &str) -> Result<(), Box<dyn std::error::Error>> {
    let server = Press::default();
    if way == "stdio" {
        server.serve(stdio()).await?.waiting().await?;
        return Ok(());
    }
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let router = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}
