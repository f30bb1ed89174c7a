//! The things of a server on the official Rust SDK, by its public API.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler, ServiceExt,
    model::*,
    service::{RequestContext, SubscriptionContext, SubscriptionSink},
    transport::{
        stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const SILENCE: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQAAAAA=";
const LANGUAGES: [&str; 3] = ["pascal", "python", "go"];
/// A call that is not cancelled by then never will be.
const PATIENCE: Duration = Duration::from_secs(20);

/// What all connections share.
#[derive(Default)]
struct Shared {
    has_extra: AtomicBool,
    ended: Mutex<Vec<&'static str>>,
    sinks: Mutex<Vec<SubscriptionSink>>,
    watchers: Mutex<Vec<Peer<RoleServer>>>,
}

#[derive(Clone, Default)]
struct Equivalent {
    shared: Arc<Shared>,
}

type Answer = Result<CallToolResponse, ErrorData>;

/// A thing of the protocol in the words of the wire.
fn wire<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("as the schema has it")
}

fn content(blocks: Value) -> Answer {
    Ok(wire::<CallToolResult>(json!({"content": blocks})).into())
}

fn say(words: impl Into<String>) -> Answer {
    content(json!([{"type": "text", "text": words.into()}]))
}

fn structured(value: Value) -> Answer {
    let text = value.to_string();
    let result = json!({"content": [{"type": "text", "text": text}], "structuredContent": value});
    Ok(wire::<CallToolResult>(result).into())
}

fn failed(words: impl Into<String>) -> Answer {
    let result = json!({"content": [{"type": "text", "text": words.into()}], "isError": true});
    Ok(wire::<CallToolResult>(result).into())
}

fn schema(fields: &[(&str, &str)]) -> Value {
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|(name, kind)| (name.to_string(), json!({"type": kind}))).collect();
    let required: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

fn tools(has_extra: bool) -> Vec<Tool> {
    let number = schema(&[("result", "integer")]);
    let numbers = json!({
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"type": "integer"}}},
        "required": ["result"],
    });
    let mirrored = json!({
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    });
    let none = || schema(&[]);
    let mut all: Vec<(&str, &str, Value, Option<Value>)> = vec![
        ("add", "Add two numbers.", schema(&[("a", "integer"), ("b", "integer")]), Some(number.clone())),
        ("greet", "Greet somebody.", schema(&[("name", "string")]), None),
        (
            "forecast",
            "A forecast.",
            schema(&[("city", "string")]),
            Some(schema(&[("city", "string"), ("celsius", "number")])),
        ),
        ("numbers", "Three numbers.", none(), Some(numbers)),
        ("region", "Say where.", mirrored, None),
        ("replays", "How often a client came back.", none(), Some(number)),
    ];
    for (name, about) in [
        ("picture", "A picture."),
        ("sound", "A sound."),
        ("document", "A text that comes along."),
        ("link", "Where a text is."),
        ("fail", "Fail."),
        ("steps", "Three steps."),
        ("talk", "Say a word on the side."),
        ("wait", "Wait to be cancelled."),
        ("waited", "How the last call that waited has ended."),
        ("drop", "Answer; the SDK gives a tool no way to drop its stream."),
        ("change", "Have a tool more."),
        ("touch", "Change a text."),
        ("ask_name", "Ask for a name."),
        ("ask_model", "Ask a model."),
        ("ask_roots", "Ask for folders."),
    ] {
        all.push((name, about, none(), None));
    }
    if has_extra {
        all.push(("extra", "Came later.", none(), None));
    }
    all.into_iter()
        .map(|(name, about, input, output)| {
            let mut tool = json!({"name": name, "description": about, "inputSchema": input});
            if let Some(output) = output {
                tool["outputSchema"] = output;
            }
            wire(tool)
        })
        .collect()
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| !version.has_initialize())
}

async fn report(context: &RequestContext<RoleServer>, step: f64, total: f64, words: &str) {
    if let Some(token) = context.meta.get_progress_token() {
        let progress =
            ProgressNotificationParam::new(token, step).with_total(total).with_message(words);
        let _ = context.peer.notify_progress(progress).await;
    }
}

fn form() -> ElicitRequestParams {
    wire(json!({
        "mode": "form",
        "message": "Who are you?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "polite": {"type": "boolean", "default": true},
            },
            "required": ["name"],
        },
    }))
}

fn question() -> CreateMessageRequestParams {
    CreateMessageRequestParams::new(vec![SamplingMessage::user_text("Which city?")], 100)
}

impl Equivalent {
    /// The answer to a question: asked by a request, or by a result that comes back with it.
    async fn asked(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Result<Value, InputRequiredResult>, ErrorData> {
        let internal = |error: &dyn std::fmt::Display| ErrorData::internal_error(error.to_string(), None);
        if let Some(answer) = request.input_responses.as_ref().and_then(|given| given.get("answer")) {
            return Ok(Ok(serde_json::to_value(answer).map_err(|error| internal(&error))?));
        }
        if is_modern(context) {
            let asked = match request.name.as_ref() {
                "ask_name" => InputRequest::Elicitation(ElicitRequest::new(form())),
                "ask_model" => InputRequest::CreateMessage(CreateMessageRequest::new(question())),
                _ => InputRequest::ListRoots(ListRootsRequest::default()),
            };
            let mut requests = InputRequests::new();
            requests.insert("answer".to_string(), asked);
            return Ok(Err(InputRequiredResult::new(Some(requests), None)));
        }
        let answer = match request.name.as_ref() {
            "ask_name" => {
                let asked = context.peer.create_elicitation(form()).await;
                serde_json::to_value(asked.map_err(|error| internal(&error))?)
            }
            "ask_model" => {
                let asked = context.peer.create_message(question()).await;
                serde_json::to_value(asked.map_err(|error| internal(&error))?)
            }
            _ => {
                let asked = context.peer.list_roots().await;
                serde_json::to_value(asked.map_err(|error| internal(&error))?)
            }
        };
        Ok(Ok(answer.map_err(|error| internal(&error))?))
    }

    async fn wait(&self, context: &RequestContext<RoleServer>) -> Answer {
        report(context, 1.0, 2.0, "waiting").await;
        let how = tokio::select! {
            _ = context.ct.cancelled() => "was cancelled",
            _ = tokio::time::sleep(PATIENCE) => "waited to the end",
        };
        self.shared.ended.lock().await.push(how);
        say(how)
    }

    async fn waited(&self) -> Answer {
        for _ in 0..PATIENCE.as_millis() / 10 {
            if let Some(how) = self.shared.ended.lock().await.pop() {
                return say(how);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        say("never began")
    }

    async fn change(&self, context: &RequestContext<RoleServer>) -> Answer {
        self.shared.has_extra.store(true, Ordering::Relaxed);
        for sink in self.shared.sinks.lock().await.iter() {
            let _ = sink.notify_tool_list_changed().await;
        }
        if !is_modern(context) {
            let _ = context.peer.notify_tool_list_changed().await;
        }
        say("changed")
    }

    async fn touch(&self) -> Answer {
        for sink in self.shared.sinks.lock().await.iter() {
            let _ = sink.notify_resource_updated("test://text").await;
        }
        for peer in self.shared.watchers.lock().await.iter() {
            let _ = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new("test://text")).await;
        }
        say("touched")
    }
}

impl ServerHandler for Equivalent {
    fn get_info(&self) -> ServerConfig {
        let capabilities = wire(json!({
            "tools": {"listChanged": true},
            "resources": {"subscribe": true},
            "prompts": {},
            "completions": {},
            "logging": {},
        }));
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("equivalent", "1.0"))
            .with_instructions("Everything that a client can ask for.")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let has_extra = self.shared.has_extra.load(Ordering::Relaxed);
        Ok(ListToolsResult::with_all_items(tools(has_extra)))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools(true).into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Answer {
        let given = Value::Object(request.arguments.clone().unwrap_or_default());
        let text = |name: &str| given[name].as_str().unwrap_or_default().to_string();
        match request.name.as_ref() {
            "add" => match (given["a"].as_i64(), given["b"].as_i64()) {
                (Some(a), Some(b)) => structured(json!({"result": a + b})),
                _ => failed("a and b are integers"),
            },
            "greet" => say(format!("Hello, {}", text("name"))),
            "forecast" => structured(json!({"city": text("city"), "celsius": 21.5})),
            "numbers" => structured(json!({"result": [1, 2, 3]})),
            "region" => say(format!("Region {}", text("region"))),
            "picture" => content(json!([{"type": "image", "data": PIXEL, "mimeType": "image/png"}])),
            "sound" => content(json!([{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}])),
            "document" => {
                let inside = json!({"uri": "test://inside", "mimeType": "text/plain", "text": "Inside."});
                content(json!([{"type": "resource", "resource": inside}]))
            }
            "link" => content(json!([{"type": "resource_link", "uri": "test://text", "name": "text"}])),
            "fail" => failed("It cannot be done"),
            "steps" => {
                for step in 1..=3 {
                    report(&context, step.into(), 3.0, &format!("step {step}")).await;
                }
                say("done")
            }
            "talk" => {
                let line = wire(json!({"level": "info", "data": "a word"}));
                let _ = context.peer.notify_logging_message(line).await;
                say("said")
            }
            "wait" => self.wait(&context).await,
            "waited" => self.waited().await,
            "drop" => say("back"),
            "replays" => structured(json!({"result": 0})),
            "change" => self.change(&context).await,
            "touch" => self.touch().await,
            "extra" => say("extra"),
            "ask_name" => match self.asked(&request, &context).await? {
                Err(question) => Ok(question.into()),
                Ok(answer) if answer["action"] == "accept" => {
                    let manner = if answer["content"]["polite"] == false { "rude" } else { "polite" };
                    say(format!("Hello, {}, {manner}", answer["content"]["name"].as_str().unwrap_or_default()))
                }
                Ok(answer) => failed(format!("They chose to {}", answer["action"])),
            },
            "ask_model" => match self.asked(&request, &context).await? {
                Err(question) => Ok(question.into()),
                Ok(answer) => {
                    let content = &answer["content"];
                    let block = if content.is_array() { &content[0] } else { content };
                    say(format!("The model says: {}", block["text"].as_str().unwrap_or_default()))
                }
            },
            "ask_roots" => match self.asked(&request, &context).await? {
                Err(question) => Ok(question.into()),
                Ok(answer) => {
                    let roots = answer["roots"].as_array().cloned().unwrap_or_default();
                    let uris: Vec<&str> = roots.iter().filter_map(|root| root["uri"].as_str()).collect();
                    say(format!("Roots: {}", uris.join(", ")))
                }
            },
            name => Err(ErrorData::invalid_params(format!("there is no tool {name}"), None)),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(wire(json!([
            {"uri": "test://text", "name": "text", "mimeType": "text/plain"},
            {"uri": "test://pixel", "name": "pixel", "mimeType": "image/png"},
        ]))))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(wire(json!([
            {"uriTemplate": "test://notes/{name}", "name": "note", "mimeType": "text/plain"},
        ]))))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let contents = match (uri, uri.strip_prefix("test://notes/")) {
            ("test://text", _) => json!({"uri": uri, "mimeType": "text/plain", "text": "A text."}),
            ("test://pixel", _) => json!({"uri": uri, "mimeType": "image/png", "blob": PIXEL}),
            (_, Some(name)) => json!({"uri": uri, "mimeType": "text/plain", "text": format!("Note {name}.")}),
            _ => return Err(ErrorData::resource_not_found("nothing is there", Some(json!({"uri": uri})))),
        };
        Ok(wire::<ReadResourceResult>(json!({"contents": [contents]})).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let arguments = json!([{"name": "code", "required": true}, {"name": "language"}]);
        Ok(ListPromptsResult::with_all_items(wire(json!([
            {"name": "hello", "description": "Say hello."},
            {"name": "review", "description": "Review some code.", "arguments": arguments},
        ]))))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let given = serde_json::to_value(&request.arguments).unwrap_or_default();
        let words = if request.name == "hello" {
            "Say hello.".to_string()
        } else {
            let language = given["language"].as_str().unwrap_or("python");
            format!("Review this {language}: {}", given["code"].as_str().unwrap_or_default())
        };
        let message = json!({"role": "user", "content": {"type": "text", "text": words}});
        Ok(wire::<GetPromptResult>(json!({"messages": [message]})).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let typed = request.argument.value;
        let values: Vec<&str> = LANGUAGES.into_iter().filter(|one| one.starts_with(&typed)).collect();
        Ok(wire(json!({"completion": {"values": values, "hasMore": false}})))
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.watchers.lock().await.push(context.peer);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.watchers.lock().await.clear();
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.shared.sinks.lock().await.push(context.sink().clone());
        context.cancelled().await;
        let id = context.sink().id().clone();
        self.shared.sinks.lock().await.retain(|sink| *sink.id() != id);
        Ok(())
    }
}

pub async fn serve(way: &str) -> Result<(), Box<dyn std::error::Error>> {
    let server = Equivalent::default();
    if way == "stdio" {
        server.serve(stdio()).await?.waiting().await?;
        return Ok(());
    }
    let config = StreamableHttpServerConfig::default()
        .with_json_response(way == "json")
        .with_legacy_session_mode(way != "stateless");
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
