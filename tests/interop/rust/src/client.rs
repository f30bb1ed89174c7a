//! The official Rust SDK as a client of the everything-server; with `steps` in its spec, of any server.
//!
//! Rules: judges nothing; what was seen is in the words of the wire.

use std::{
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, ServiceError,
    model::*,
    service::{NotificationContext, PeerRequestOptions, RequestContext, RunningService},
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use serde_json::{Map, Value, json};
use tokio::{process::Command, sync::Notify};

const SCENARIO: Duration = Duration::from_secs(30);
const LARGE: usize = 400_000;
const AT_ONCE: usize = 20;
const WATCHED: &str = "test://watched-resource";
const FOLDER: &str = "file:///projects/interop";
const UPDATED: &str = "notifications/resources/updated";
const CHANGED: &str = "notifications/tools/list_changed";

type Seen = Result<Value, Box<dyn std::error::Error + Send + Sync>>;
type Running = RunningService<RoleClient, Heard>;

/// What the user types into a field of this name; a field that is not here is left out.
fn typed(name: &str) -> Option<Value> {
    Some(match name {
        "username" => json!("ada"),
        "email" => json!("ada@example.com"),
        "name" => json!("Ada"),
        "age" => json!(36),
        "ok" | "value" => json!(true),
        "color" => json!("green"),
        "context" => json!("interop"),
        "untitledSingle" => json!("option2"),
        "titledSingle" => json!("value2"),
        "legacyEnum" => json!("opt2"),
        "untitledMulti" => json!(["option1", "option3"]),
        "titledMulti" => json!(["value1", "value3"]),
        _ => return None,
    })
}

/// What is typed where there are no lists: their values, separated by commas.
fn written(value: Value, field: &Value) -> Value {
    match value.as_array() {
        Some(values) if field["type"] == "string" => {
            let words: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            json!(words.join(", "))
        }
        _ => value,
    }
}

#[derive(Default)]
struct Kept {
    questions: Vec<Value>,
    notices: Vec<Value>,
    logs: Vec<Value>,
    steps: Vec<Value>,
}

/// A client, and what it was told and asked.
#[derive(Clone)]
struct Heard {
    spec: Arc<Value>,
    able: bool,
    kept: Arc<Mutex<Kept>>,
    stirred: Arc<Notify>,
}

impl Heard {
    fn new(spec: &Arc<Value>, able: bool) -> Self {
        Heard { spec: spec.clone(), able, kept: Default::default(), stirred: Default::default() }
    }

    fn era(&self) -> &str {
        self.spec["era"].as_str().unwrap_or_default()
    }

    fn is_modern(&self) -> bool {
        self.era() == ProtocolVersion::V_2026_07_28.as_str()
    }

    fn keep(&self, change: impl FnOnce(&mut Kept)) {
        change(&mut self.kept.lock().unwrap());
        self.stirred.notify_waiters();
    }

    fn ask(&self, method: &str, params: Value) {
        self.keep(|kept| kept.questions.push(json!({"method": method, "params": params})));
    }

    /// Wait for something that is said to us; the scenario as a whole has a time limit.
    async fn until(&self, is_true: impl Fn(&Kept) -> bool) {
        loop {
            let stirred = self.stirred.notified();
            if is_true(&self.kept.lock().unwrap()) {
                return;
            }
            // A notice between the look and the wait is met by looking again.
            let _ = tokio::time::timeout(Duration::from_millis(50), stirred).await;
        }
    }
}

fn count(kept: &Kept, method: &str) -> usize {
    kept.notices.iter().filter(|notice| notice[0] == method).count()
}

fn wire<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("as the schema has it")
}

impl ClientHandler for Heard {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = json!({});
        if self.able {
            capabilities = json!({"sampling": {}, "roots": {}, "elicitation": {}});
            if self.era() >= "2025-11-25" {
                capabilities["elicitation"] = json!({"form": {}, "url": {}});
            }
        }
        let config = ClientConfig::new(wire(capabilities), Implementation::new("interop", "1"));
        match self.is_modern() {
            true => config,
            false => config.with_protocol_version(wire(json!(self.era()))),
        }
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let params = serde_json::to_value(request).unwrap_or_default();
        self.ask("elicitation/create", params.clone());
        if params["message"].as_str().is_some_and(|words| words.contains("decline")) {
            return Ok(wire(json!({"action": "decline"})));
        }
        let Some(fields) = params["requestedSchema"]["properties"].as_object() else {
            return Ok(wire(json!({"action": "accept"})));
        };
        let content: Map<String, Value> = fields
            .iter()
            .filter_map(|(name, field)| Some((name.clone(), written(typed(name)?, field))))
            .collect();
        Ok(wire(json!({"action": "accept", "content": content})))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.ask("sampling/createMessage", serde_json::to_value(params).unwrap_or_default());
        let content = json!({"type": "text", "text": "Paris, of course"});
        Ok(wire(json!({"role": "assistant", "content": content, "model": "interop"})))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        self.ask("roots/list", json!({}));
        Ok(wire(json!({"roots": [{"uri": FOLDER, "name": "interop"}]})))
    }

    async fn on_progress(&self, step: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.keep(|kept| kept.steps.push(json!([step.progress, step.total, step.message])));
    }

    async fn on_logging_message(
        &self,
        line: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.keep(|kept| kept.logs.push(serde_json::to_value(line).unwrap_or_default()));
    }

    async fn on_resource_updated(
        &self,
        about: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.keep(|kept| kept.notices.push(json!([UPDATED, about.uri])));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.keep(|kept| kept.notices.push(json!([CHANGED, null])));
    }
}

/// A session of the era; can it be asked anything?
async fn connect(spec: &Arc<Value>, able: bool) -> Result<Running, Box<dyn std::error::Error + Send + Sync>> {
    let handler = Heard::new(spec, able);
    let lifecycle = match handler.is_modern() {
        true => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        },
        false => ClientLifecycleMode::Initialize,
    };
    if let Some(url) = spec["http"].as_str() {
        let transport = StreamableHttpClientTransport::from_uri(url);
        return Ok(handler.serve_with_lifecycle(transport, lifecycle).await?);
    }
    let words: Vec<&str> = spec["stdio"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stderr(Stdio::inherit());
    Ok(handler.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?)
}

// ---------------------------------------------------------------- the scenarios

fn params(name: &str, arguments: Value) -> CallToolRequestParams {
    let given = arguments.as_object().cloned().unwrap_or_default();
    CallToolRequestParams::new(name.to_string()).with_arguments(given)
}

async fn call(client: &Running, name: &str, arguments: Value) -> Seen {
    Ok(serde_json::to_value(client.call_tool(params(name, arguments)).await?)?)
}

fn refusal(error: ServiceError) -> Seen {
    match error {
        ServiceError::McpError(error) => Ok(serde_json::to_value(error)?),
        error => Err(format!("no error of the server, but {error}").into()),
    }
}

/// A result, or the error that came instead of one.
async fn call_or_refusal(client: &Running, name: &str, arguments: Value) -> Seen {
    match client.call_tool(params(name, arguments)).await {
        Ok(result) => Ok(serde_json::to_value(result)?),
        Err(error) => refusal(error),
    }
}

async fn asked(client: &Running, name: &str, arguments: Value) -> Seen {
    let heard = client.service();
    heard.keep(|kept| kept.questions.clear());
    let result = call(client, name, arguments).await?;
    Ok(json!({"result": result, "questions": heard.kept.lock().unwrap().questions}))
}

async fn meet(client: &Running) -> Seen {
    let said = serde_json::to_value(client.peer_info().ok_or("nothing was said")?)?;
    Ok(json!({
        "revision": said["protocolVersion"], "server": said["serverInfo"],
        "instructions": said["instructions"], "capabilities": said["capabilities"],
    }))
}

async fn lists(client: &Running) -> Seen {
    Ok(json!({
        "tools": client.list_all_tools().await?,
        "resources": client.list_all_resources().await?,
        "templates": client.list_all_resource_templates().await?,
        "prompts": client.list_all_prompts().await?,
    }))
}

async fn content(client: &Running) -> Seen {
    let mut seen = Map::new();
    for name in ["image_content", "audio_content", "embedded_resource", "multiple_content_types"] {
        seen.insert(name.into(), call(client, &format!("test_{name}"), json!({})).await?);
    }
    Ok(Value::Object(seen))
}

async fn large(client: &Running) -> Seen {
    let result = call(client, "test_structured_content", json!({"place": "x".repeat(LARGE)})).await?;
    let length = |value: &Value| value.as_str().unwrap_or_default().len();
    Ok(json!([length(&result["content"][0]["text"]), length(&result["structuredContent"]["place"])]))
}

async fn at_once(client: &Running) -> Seen {
    let mut running = Vec::new();
    for nth in 0..AT_ONCE {
        let peer = client.peer().clone();
        running.push(tokio::spawn(async move {
            let place = nth.to_string();
            let result = peer.call_tool_once(params("test_structured_content", json!({"place": place}))).await;
            let seen = match result {
                Ok(CallToolResponse::Complete(result)) => {
                    serde_json::to_value(result).unwrap_or_default()["structuredContent"]["place"].clone()
                }
                other => json!(format!("{other:?}")),
            };
            (place, seen)
        }));
    }
    let mut seen = Map::new();
    for one in running {
        let (place, said) = one.await?;
        seen.insert(place, said);
    }
    Ok(Value::Object(seen))
}

async fn read(client: &Running) -> Seen {
    let mut seen = Vec::new();
    for uri in ["test://static-text", "test://static-binary", "test://template/42/data"] {
        let result = client.read_resource(ReadResourceRequestParams::new(uri)).await?;
        seen.push(serde_json::to_value(result)?["contents"].clone());
    }
    Ok(Value::Array(seen))
}

async fn unknown_resource(client: &Running) -> Seen {
    match client.read_resource(ReadResourceRequestParams::new("test://nowhere")).await {
        Ok(result) => Err(format!("no error, but {result:?}").into()),
        Err(error) => refusal(error),
    }
}

async fn unknown_tool(client: &Running) -> Seen {
    match client.call_tool(params("no_such_tool", json!({}))).await {
        Ok(result) => Err(format!("no error, but {result:?}").into()),
        Err(error) => refusal(error),
    }
}

async fn prompt(client: &Running, name: &str, arguments: Value) -> Seen {
    let mut wanted = json!({"name": name});
    if !arguments.is_null() {
        wanted["arguments"] = arguments;
    }
    Ok(serde_json::to_value(client.get_prompt(wire(wanted)).await?)?)
}

async fn prompts(client: &Running) -> Seen {
    let words = json!({"arg1": "one", "arg2": "two"});
    let about = json!({"resourceUri": "test://shown"});
    Ok(json!({
        "words": prompt(client, "test_prompt_with_arguments", words).await?,
        "image": prompt(client, "test_prompt_with_image", Value::Null).await?,
        "resource": prompt(client, "test_prompt_with_embedded_resource", about).await?,
    }))
}

async fn prompt_asks(client: &Running) -> Seen {
    let heard = client.service();
    heard.keep(|kept| kept.questions.clear());
    let result = prompt(client, "test_input_required_result_prompt", Value::Null).await?;
    Ok(json!({"result": result, "questions": heard.kept.lock().unwrap().questions}))
}

async fn complete(client: &Running) -> Seen {
    let wanted = wire(json!({
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": "test"},
    }));
    Ok(serde_json::to_value(client.complete(wanted).await?)?)
}

async fn progress(client: &Running) -> Seen {
    let heard = client.service();
    heard.keep(|kept| kept.steps.clear());
    let result = call(client, "test_tool_with_progress", json!({})).await?;
    heard.until(|kept| kept.steps.len() >= 3).await;
    // The SDK runs a handler for each at once, so that they come in any order.
    Ok(json!({"steps": heard.kept.lock().unwrap().steps, "result": result, "unordered": true}))
}

async fn logging(client: &Running) -> Seen {
    let heard = client.service();
    let mut wanted = params("test_logging_tool", json!({}));
    if heard.is_modern() {
        wanted.meta = Some(wire(json!({"io.modelcontextprotocol/logLevel": "info"})));
    } else {
        client.set_level(SetLevelRequestParams::new(LoggingLevel::Info)).await?;
    }
    let result = serde_json::to_value(client.call_tool(wanted).await?)?;
    heard.until(|kept| kept.logs.len() >= 2).await;
    Ok(json!({"logs": heard.kept.lock().unwrap().logs, "result": result, "unordered": true}))
}

/// Another client of the same kind, which cannot be asked anything.
async fn unable(client: &Running) -> Seen {
    let other = connect(&client.service().spec, false).await?;
    let seen = match other.call_tool(params("test_missing_capability", json!({}))).await {
        Ok(result) => json!({"result": result}),
        Err(error) => json!({"error": refusal(error)?}),
    };
    other.cancel().await?;
    Ok(seen)
}

/// Hear of a change; leave; change it again, and something else: only that is heard.
async fn subscribe(client: &Running) -> Seen {
    let heard = client.service();
    heard.keep(|kept| kept.notices.clear());
    let mut notices: Vec<Value> = Vec::new();
    let there: Value;
    if heard.is_modern() {
        let mut watching = client.listen(wire(json!({"resourceSubscriptions": [WATCHED]}))).await?;
        call(client, "test_trigger_resource_update", json!({})).await?;
        notices.push(notice(watching.next().await?)?);
        watching.cancel().await?;
        let mut watching = client.listen(wire(json!({"toolsListChanged": true}))).await?;
        call(client, "test_trigger_resource_update", json!({})).await?;
        call(client, "test_trigger_tool_change", json!({})).await?;
        notices.push(notice(watching.next().await?)?);
        client.clear_response_cache().await;
        there = json!(client.list_all_tools().await?);
        call(client, "test_trigger_tool_change", json!({})).await?;
        notices.push(notice(watching.next().await?)?);
        watching.cancel().await?;
    } else {
        client.subscribe(SubscribeRequestParams::new(WATCHED)).await?;
        call(client, "test_trigger_resource_update", json!({})).await?;
        heard.until(|kept| count(kept, UPDATED) >= 1).await;
        client.unsubscribe(UnsubscribeRequestParams::new(WATCHED)).await?;
        call(client, "test_trigger_resource_update", json!({})).await?;
        call(client, "test_trigger_tool_change", json!({})).await?;
        heard.until(|kept| count(kept, CHANGED) >= 1).await;
        there = json!(client.list_all_tools().await?);
        call(client, "test_trigger_tool_change", json!({})).await?;
        heard.until(|kept| count(kept, CHANGED) >= 2).await;
    }
    notices.extend(heard.kept.lock().unwrap().notices.clone());
    let is_new = there.as_array().into_iter().flatten().any(|tool| tool["name"] == "test_fleeting_tool");
    Ok(json!({"notices": notices, "new tool": is_new}))
}

fn notice(told: Option<ServerNotification>) -> Seen {
    let told = serde_json::to_value(told.ok_or("the subscription ended")?)?;
    Ok(json!([told["method"], told["params"]["uri"]]))
}

/// Cancel a call that is known to run; the server says when its handler has ended.
async fn cancel(client: &Running) -> Seen {
    let heard = client.service();
    heard.keep(|kept| kept.steps.clear());
    let ticket = json!({"ticket": format!("rust {} {}", heard.era(), std::process::id())});
    let request = CallToolRequest::new(params("test_until_cancelled", ticket.clone()));
    let running = client
        .send_cancellable_request(ClientRequest::CallToolRequest(request), PeerRequestOptions::no_options())
        .await?;
    heard.until(|kept| !kept.steps.is_empty()).await;
    running.cancel(Some("interop".into())).await?;
    Ok(json!({"server": call(client, "test_cancelled", ticket).await?, "answered": []}))
}

async fn play(client: &Running, scenario: &str) -> Seen {
    let contact = json!({"name": "Ada", "contactMethod": "email", "email": "ada@example.com"});
    match scenario {
        "meet" => meet(client).await,
        "list" => lists(client).await,
        "call" => call(client, "test_simple_text", json!({})).await,
        "content" => content(client).await,
        "structured" => Ok(json!({
            "object": call(client, "test_structured_content", json!({"place": "Turin"})).await?,
            "list": call(client, "test_structured_list", json!({})).await?,
        })),
        "raw schema" => Ok(json!({
            "fits": call(client, "json_schema_2020_12_tool", contact).await?,
            "does not": call_or_refusal(client, "json_schema_2020_12_tool", json!({"name": "Ada"})).await?,
        })),
        "mirrored header" => call(client, "test_x_mcp_header", json!({"region": "Zürich, west"})).await,
        "large" => large(client).await,
        "at once" => at_once(client).await,
        "tool error" => call(client, "test_error_handling", json!({})).await,
        "unknown tool" => unknown_tool(client).await,
        "bad argument" => call_or_refusal(client, "test_structured_content", json!({"place": 7})).await,
        "read" => read(client).await,
        "unknown resource" => unknown_resource(client).await,
        "prompt" => prompts(client).await,
        "prompt that asks" => prompt_asks(client).await,
        "complete" => complete(client).await,
        "progress" => progress(client).await,
        "logging" => logging(client).await,
        "elicit" => asked(client, "test_elicitation", json!({"message": "Who are you?"})).await,
        "elicit, declined" => asked(client, "test_elicitation", json!({"message": "You may decline"})).await,
        "elicit, defaults" => asked(client, "test_elicitation_sep1034_defaults", json!({})).await,
        "elicit, choices" => asked(client, "test_elicitation_sep1330_enums", json!({})).await,
        "elicit, url" => asked(client, "test_elicitation_url", json!({})).await,
        "elicit, twice" => asked(client, "test_input_required_result_multi_round", json!({})).await,
        "elicit, streaming" => asked(client, "test_streaming_elicitation", json!({})).await,
        "sample" => asked(client, "test_sampling", json!({"prompt": "Which city?"})).await,
        "roots" => asked(client, "test_input_required_result_list_roots", json!({})).await,
        "ask together" => asked(client, "test_input_required_result_multiple_inputs", json!({})).await,
        "ask the unable" => unable(client).await,
        "subscribe" => subscribe(client).await,
        "cancel" => cancel(client).await,
        "reconnect" => call(client, "test_reconnection", json!({})).await,
        "ping" => {
            client.send_request(ClientRequest::PingRequest(PingRequest::default())).await?;
            Ok(json!({}))
        }
        other => Err(format!("there is no scenario {other}").into()),
    }
}

// ---------------------------------------------------------------- steps of a spec

fn shown<T: serde::Serialize>(result: T) -> Value {
    serde_json::to_value(result).unwrap_or_default()
}

/// One step: a result or an error, with the questions and the progress that came before it.
async fn step(client: &Running, wanted: &Value) -> Seen {
    let heard = client.service();
    heard.keep(|kept| *kept = Kept::default());
    let params = wanted["params"].clone();
    let outcome = match wanted["do"].as_str().unwrap_or_default() {
        "meet" => return meet(client).await,
        "list" => return lists(client).await,
        "call" => client.call_tool(wire(params)).await.map(shown),
        "read" => client.read_resource(wire(params)).await.map(shown),
        "prompt" => client.get_prompt(wire(params)).await.map(shown),
        "complete" => client.complete(wire(params)).await.map(shown),
        other => return Err(format!("there is no step {other}").into()),
    };
    let progress = wanted["progress"].as_u64().unwrap_or_default() as usize;
    heard.until(|kept| kept.steps.len() >= progress).await;
    let kept = heard.kept.lock().unwrap();
    let mut seen = json!({"questions": kept.questions, "steps": kept.steps, "unordered": true});
    match outcome {
        Ok(result) => seen["result"] = result,
        Err(error) => seen["error"] = refusal(error)?,
    }
    Ok(seen)
}

// ---------------------------------------------------------------- the run

const SCENARIOS: [&str; 34] = [
    "meet", "list", "call", "content", "structured", "raw schema", "mirrored header", "large",
    "at once", "tool error", "unknown tool", "bad argument", "read", "unknown resource", "prompt",
    "prompt that asks", "complete", "progress", "logging", "elicit", "elicit, declined",
    "elicit, defaults", "elicit, choices", "elicit, url", "elicit, twice", "elicit, streaming",
    "sample", "roots", "ask together", "ask the unable", "subscribe", "cancel", "reconnect", "ping",
];

fn report(scenario: &str, outcome: Result<Seen, tokio::time::error::Elapsed>) {
    let line = match outcome {
        Err(_) => json!({"scenario": scenario, "failed": "took too long"}),
        Ok(Err(error)) => json!({"scenario": scenario, "failed": error.to_string()}),
        Ok(Ok(seen)) => json!({"scenario": scenario, "seen": seen}),
    };
    println!("{line}");
}

pub async fn drive(text: &str) -> Result<(), Box<dyn std::error::Error>> {
    let spec: Arc<Value> = Arc::new(serde_json::from_str(text)?);
    let client = connect(&spec, true).await.map_err(|error| error.to_string())?;
    let left_out: Vec<&str> =
        spec["leave_out"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if let Some(steps) = spec["steps"].as_array() {
        for wanted in steps {
            let name = wanted["scenario"].as_str().unwrap_or_default();
            report(name, tokio::time::timeout(SCENARIO, step(&client, wanted)).await);
        }
    } else {
        for scenario in SCENARIOS.into_iter().filter(|one| !left_out.contains(one)) {
            report(scenario, tokio::time::timeout(SCENARIO, play(&client, scenario)).await);
        }
    }
    client.cancel().await?;
    println!("{}", json!({"scenario": "leave", "seen": "left"}));
    Ok(())
}
