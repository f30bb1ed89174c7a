// The official TypeScript SDK, 2.x or 1.x, as a client of the everything-server, or of any.
//
//     node drive_typescript.mjs FOLDER '{"era": "2026-07-28", "http": "http://...", "leave_out": []}'
//
// FOLDER is where @modelcontextprotocol/client is installed. Takes the specs of drive_mcp.py, plays
// its scenarios under the same names, and prints the same lines. FOLDER may have
// @modelcontextprotocol/sdk 1.x instead, which plays the steps of a spec.
//
// Rules: judges nothing; what was seen is in the words of the wire. Imports nothing of ours.

import { existsSync } from "node:fs";
import { createRequire } from "node:module";

const folder = process.argv[2];
const spec = JSON.parse(process.argv[3]);
const require = createRequire(`${folder}/package.json`);
const second = existsSync(`${folder}/node_modules/@modelcontextprotocol/client`);
const { Client, ResourceNotFoundError, SSEClientTransport, StreamableHTTPClientTransport, StdioClientTransport } =
    second
        ? { ...require("@modelcontextprotocol/client"), ...require("@modelcontextprotocol/client/stdio") }
        : Object.assign(
              {},
              ...["index", "sse", "streamableHttp", "stdio"].map((name) =>
                  require(`@modelcontextprotocol/sdk/client/${name}.js`),
              ),
          );
// What 1.x calls the methods.
const schemas = second
    ? {}
    : (({ ElicitRequestSchema, CreateMessageRequestSchema, ListRootsRequestSchema }) => ({
          "elicitation/create": ElicitRequestSchema,
          "sampling/createMessage": CreateMessageRequestSchema,
          "roots/list": ListRootsRequestSchema,
      }))(require("@modelcontextprotocol/sdk/types.js"));

const MODERN = "2026-07-28";
const SCENARIO_MS = 30_000;
const LARGE = 400_000;
const AT_ONCE = 20;
const WATCHED = "test://watched-resource";
const UPDATED = "notifications/resources/updated";
const CHANGED = "notifications/tools/list_changed";
const FOLDER_URI = "file:///projects/interop";
// What the user types into a field of this name; a field that is not here is left out.
const TYPED = {
    username: "ada", email: "ada@example.com", name: "Ada", age: 36, ok: true, value: true,
    color: "green", context: "interop", untitledSingle: "option2", titledSingle: "value2",
    legacyEnum: "opt2", untitledMulti: ["option1", "option3"], titledMulti: ["value1", "value3"],
};

const modern = spec.era === MODERN;
const notices = [];
const logs = [];
const questions = [];
let waiting = [];

function hear() {
    for (const { isTrue, resolve } of waiting) if (isTrue()) resolve();
    waiting = waiting.filter(({ isTrue }) => !isTrue());
}

/** Wait for something that is said to us. */
function until(isTrue) {
    return new Promise((resolve) => {
        waiting.push({ isTrue, resolve });
        hear();
    });
}

const heard = (...methods) => notices.filter((notice) => methods.includes(notice.method));

// ---------------------------------------------------------------- connecting

function transport() {
    if (spec.http) return new StreamableHTTPClientTransport(new URL(spec.http));
    if (spec.sse) return new SSEClientTransport(new URL(spec.sse));
    const [command, ...args] = spec.stdio;
    return new StdioClientTransport({ command, args });
}

const versionNegotiation = { mode: modern ? "auto" : "legacy" };
const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const client = new Client({ name: "interop", version: "1" }, { capabilities, versionNegotiation });

const named = (method) => schemas[method] ?? method;
client.setRequestHandler(named("elicitation/create"), ({ method, params }) => {
    questions.push({ method, params });
    if (params.message.includes("decline")) return { action: "decline" };
    if (params.mode === "url") return { action: "accept" };
    const names = Object.keys(params.requestedSchema.properties).filter((name) => name in TYPED);
    return { action: "accept", content: Object.fromEntries(names.map((name) => [name, TYPED[name]])) };
});
client.setRequestHandler(named("sampling/createMessage"), ({ method, params }) => {
    questions.push({ method, params });
    return { role: "assistant", content: { type: "text", text: "Paris, of course" }, model: "interop" };
});
client.setRequestHandler(named("roots/list"), ({ method }) => {
    questions.push({ method, params: {} });
    return { roots: [{ uri: FOLDER_URI, name: "interop" }] };
});
if (second)
    client.setNotificationHandler("notifications/message", ({ params }) => {
        logs.push(params);
        hear();
    });
for (const method of second ? [UPDATED, CHANGED] : []) {
    client.setNotificationHandler(method, ({ params }) => {
        notices.push({ method, params: params ?? {} });
        hear();
    });
}

// ---------------------------------------------------------------- the scenarios

const call = (name, args = {}, options = {}) => client.callTool({ name, arguments: args }, options);

async function asked(name, args = {}) {
    questions.length = 0;
    const result = await call(name, args);
    return { result, questions: [...questions] };
}

async function refused(doing) {
    let result;
    try {
        result = await doing;
    } catch (error) {
        if (typeof error.code !== "number") throw error;
        const { code, message, data } = error;
        const renumbered = second && error instanceof ResourceNotFoundError;
        return { code, message, data, renumbered };
    }
    throw new Error(`no error, but ${JSON.stringify(result)}`);
}

/** Be told of changes, in the way of the era; gives what ends it. */
async function watch({ resources = [], tools = false }) {
    if (modern) {
        const filter = {};
        if (resources.length) filter.resourceSubscriptions = resources;
        if (tools) filter.toolsListChanged = true;
        const subscription = await client.listen(filter);
        return () => subscription.close();
    }
    for (const uri of resources) await client.subscribeResource({ uri });
    return async () => {
        for (const uri of resources) await client.unsubscribeResource({ uri });
    };
}

const scenarios = {
    meet: async () => ({
        revision: second ? client.getNegotiatedProtocolVersion() : client.transport._protocolVersion ?? null,
        server: client.getServerVersion(),
        instructions: client.getInstructions(),
        capabilities: client.getServerCapabilities(),
    }),
    list: async () => ({
        tools: (await client.listTools()).tools,
        resources: (await client.listResources()).resources,
        templates: (await client.listResourceTemplates()).resourceTemplates,
        prompts: (await client.listPrompts()).prompts,
    }),
    call: () => call("test_simple_text"),
    content: async () => ({
        image_content: await call("test_image_content"),
        audio_content: await call("test_audio_content"),
        embedded_resource: await call("test_embedded_resource"),
        multiple_content_types: await call("test_multiple_content_types"),
    }),
    structured: async () => ({
        object: await call("test_structured_content", { place: "Turin" }),
        list: await call("test_structured_list"),
    }),
    "raw schema": async () => ({
        fits: await call("json_schema_2020_12_tool", {
            name: "Ada", contactMethod: "email", email: "ada@example.com",
        }),
        "does not": await call("json_schema_2020_12_tool", { name: "Ada" }),
    }),
    "mirrored header": () => call("test_x_mcp_header", { region: "Zürich, west" }),
    large: async () => {
        const result = await call("test_structured_content", { place: "x".repeat(LARGE) });
        return [result.content[0].text.length, result.structuredContent.place.length];
    },
    "at once": async () => {
        const places = Array.from({ length: AT_ONCE }, (_, nth) => String(nth));
        const results = places.map((place) => call("test_structured_content", { place }));
        const seen = (await Promise.all(results)).map((one) => one.structuredContent.place);
        return Object.fromEntries(places.map((place, nth) => [place, seen[nth]]));
    },
    "tool error": () => call("test_error_handling"),
    "unknown tool": () => refused(call("no_such_tool")),
    "bad argument": () => call("test_structured_content", { place: 7 }),
    read: async () => {
        const seen = [];
        for (const uri of ["test://static-text", "test://static-binary", "test://template/42/data"])
            seen.push((await client.readResource({ uri })).contents);
        return seen;
    },
    "unknown resource": () => refused(client.readResource({ uri: "test://nowhere" })),
    prompt: async () => ({
        words: await client.getPrompt({
            name: "test_prompt_with_arguments", arguments: { arg1: "one", arg2: "two" },
        }),
        image: await client.getPrompt({ name: "test_prompt_with_image" }),
        resource: await client.getPrompt({
            name: "test_prompt_with_embedded_resource", arguments: { resourceUri: "test://shown" },
        }),
    }),
    "prompt that asks": async () => {
        questions.length = 0;
        const result = await client.getPrompt({ name: "test_input_required_result_prompt" });
        return { result, questions: [...questions] };
    },
    complete: () =>
        client.complete({
            ref: { type: "ref/prompt", name: "test_prompt_with_arguments" },
            argument: { name: "arg1", value: "test" },
        }),
    progress: async () => {
        const steps = [];
        const onprogress = (step) => steps.push([step.progress, step.total, step.message]);
        const result = await call("test_tool_with_progress", {}, { onprogress });
        return { steps, result };
    },
    logging: async () => {
        logs.length = 0;
        const params = { name: "test_logging_tool", arguments: {} };
        if (modern) params._meta = { "io.modelcontextprotocol/logLevel": "info" };
        else await client.setLoggingLevel("info");
        const result = await client.callTool(params);
        await until(() => logs.length >= 2);
        return { logs: [...logs], result };
    },
    elicit: () => asked("test_elicitation", { message: "Who are you?" }),
    "elicit, declined": () => asked("test_elicitation", { message: "You may decline" }),
    "elicit, defaults": () => asked("test_elicitation_sep1034_defaults"),
    "elicit, choices": () => asked("test_elicitation_sep1330_enums"),
    "elicit, url": () => asked("test_elicitation_url"),
    "elicit, twice": () => asked("test_input_required_result_multi_round"),
    "elicit, streaming": () => asked("test_streaming_elicitation"),
    sample: () => asked("test_sampling", { prompt: "Which city?" }),
    roots: () => asked("test_input_required_result_list_roots"),
    "ask together": () => asked("test_input_required_result_multiple_inputs"),
    "ask the unable": async () => {
        // Another client of the same kind, which cannot be asked anything.
        const other = new Client({ name: "unable", version: "1" }, { versionNegotiation });
        await other.connect(transport());
        try {
            return { result: await other.callTool({ name: "test_missing_capability" }) };
        } catch (error) {
            return { error: { code: error.code, message: error.message, data: error.data } };
        } finally {
            await other.close();
        }
    },
    subscribe: async () => {
        // Hear of a change; leave; change it again, and something else: only that is heard.
        notices.length = 0;
        let leave = await watch({ resources: [WATCHED] });
        await call("test_trigger_resource_update");
        await until(() => heard(UPDATED).length >= 1);
        await leave();
        leave = await watch({ tools: true });
        await call("test_trigger_resource_update");
        await call("test_trigger_tool_change");
        await until(() => heard(CHANGED).length >= 1);
        const there = (await client.listTools()).tools.map((tool) => tool.name);
        await call("test_trigger_tool_change");
        await until(() => heard(CHANGED).length >= 2);
        await leave();
        return {
            notices: notices.map(({ method, params }) => [method, params.uri ?? null]),
            "new tool": there.includes("test_fleeting_tool"),
        };
    },
    cancel: async () => {
        // Cancel a call that is known to run; the server says when its handler has ended.
        const ticket = { ticket: `typescript ${spec.era} ${process.pid}` };
        const aborting = new AbortController();
        const answered = [];
        const running = new Promise((resolve) => {
            call("test_until_cancelled", ticket, { onprogress: resolve, signal: aborting.signal })
                .then((result) => answered.push(result), () => {});
        });
        await running;
        aborting.abort("interop");
        return { server: await call("test_cancelled", ticket), answered };
    },
    reconnect: () => call("test_reconnection"),
    ping: () => client.ping(),
};

// ---------------------------------------------------------------- steps of a spec

/** A result or an error, with the questions and the progress that came before it. */
async function step({ do: kind, params = {} }) {
    if (kind === "meet" || kind === "list") return scenarios[kind]();
    questions.length = 0;
    const steps = [];
    const onprogress = ({ progress, total, message }) => steps.push([progress, total, message]);
    const sending = {
        call: () => (second ? client.callTool(params, { onprogress }) : client.callTool(params, undefined, { onprogress })),
        read: () => client.readResource(params),
        prompt: () => client.getPrompt(params),
        complete: () => client.complete(params),
    }[kind];
    let outcome;
    try {
        outcome = { result: await sending() };
    } catch (error) {
        outcome = { error: await refused(Promise.reject(error)) };
    }
    // Progress that has arrived together with the result is dropped by the SDK.
    return { ...outcome, questions: [...questions], steps, drops: true };
}

// ---------------------------------------------------------------- the run

const report = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

async function play(scenario, run) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error("took too long")), SCENARIO_MS);
    });
    try {
        report({ scenario, seen: await Promise.race([run(), late]) });
    } catch (error) {
        report({ scenario, failed: String(error.stack ?? error) });
    } finally {
        clearTimeout(timer);
    }
}

await client.connect(transport());
for (const wanted of spec.steps ?? []) await play(wanted.scenario, () => step(wanted));
for (const [scenario, run] of spec.steps ? [] : Object.entries(scenarios))
    if (!spec.leave_out.includes(scenario)) await play(scenario, run);
await client.close();
report({ scenario: "leave", seen: "left" });
