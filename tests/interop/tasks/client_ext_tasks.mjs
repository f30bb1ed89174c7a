// The package of the extension's authors, @modelcontextprotocol/ext-tasks, as a client of
// our_server.py, in both generations of tasks.
//
//     node client_ext_tasks.mjs FOLDER '{"era": "2026-07-28", "http": "http://...", "scenarios": []}'
//
// FOLDER is where the package is installed, beside @modelcontextprotocol/client. Plays the scenarios
// of client_mcp_1.py under the same names, and prints the same lines. At 2026-07-28 the package leaves
// the wire to its host, since the official client rejects the results of tasks: here they are posted.
//
// Rules: judges nothing. Imports nothing of ours.

import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const spec = JSON.parse(process.argv[3]);
const load = (path) => import(pathToFileURL(`${folder}/node_modules/@modelcontextprotocol/${path}`).href);
const { Client, StreamableHTTPClientTransport } = await load("client/dist/index.mjs");
const { StdioClientTransport } = await load("client/dist/stdio.mjs");
const { createTaskSessionFromClient, toolDeclarationFromMcpTool } = await load("ext-tasks/dist/client/index.js");

const MODERN = "2026-07-28";
const SCENARIO_MS = 30_000;
const TASKS = "io.modelcontextprotocol/tasks";
const RELATED = "io.modelcontextprotocol/related-task";
const modern = spec.era === MODERN;
const clientInfo = { name: "interop", version: "1" };
const capabilities = { elicitation: { form: {} } };
const ANY = { "~standard": { version: 1, vendor: "interop", validate: (value) => ({ value }) } };
let asked = [];
let lastId = 0;

/** Post one request, and read its response, in plain JSON or as an event. */
async function rawDispatch({ method, params }, { signal } = {}) {
    const headers = {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": method,
        "mcp-name": params.taskId ?? params.name,
    };
    const body = JSON.stringify({ jsonrpc: "2.0", id: `task-${++lastId}`, method, params });
    const response = await fetch(spec.http, { method: "POST", headers, body, signal });
    const text = await response.text();
    const data = text.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
    const said = JSON.parse(data.length ? data.at(-1) : text);
    return said.error ? { kind: "error", error: said.error } : { kind: "result", result: said.result };
}

async function connected() {
    const versionNegotiation = { mode: modern ? "auto" : "legacy" };
    const client = new Client(clientInfo, { capabilities, versionNegotiation });
    const [command, ...args] = spec.stdio ?? [];
    await client.connect(
        spec.http ? new StreamableHTTPClientTransport(new URL(spec.http)) : new StdioClientTransport({ command, args }),
    );
    const { tools } = await client.listTools();
    const known = new Map(tools.map((tool) => [tool.name, toolDeclarationFromMcpTool(tool)]));
    const session = createTaskSessionFromClient(client, {
        endpointId: "press",
        tools: { currentTool: (name) => known.get(name) },
        async onInputRequest(request) {
            asked.push(request.params.message);
            return { action: "accept", content: { value: 3 } };
        },
        ...(modern && {
            rawDispatch,
            v2RequestFraming: { protocolVersion: MODERN, clientInfo, clientCapabilities: capabilities },
        }),
    });
    return { client, session };
}

const { client, session } = await connected();
const prefer = { task: { preference: "prefer" } };

/** A call from its first state to the last. */
async function followed(execution) {
    const statuses = [];
    const onEvent = ({ type, task }) => {
        if (type !== "task") return;
        statuses.push(task.status);
        // It polls, and does not send `tasks/result` before the end; the input requests of
        // 2025-11-25 arrive on that request, so that its host has to send it.
        const request = { method: "tasks/result", params: { taskId: task.taskId } };
        if (!modern && task.status === "input_required") client.request(request, ANY).catch(() => {});
    };
    const { outcome } = await execution.settle({ onEvent });
    if (statuses.at(-1) !== outcome.status) statuses.push(outcome.status);
    const seen = { taskId: execution.handle?.taskId, statuses };
    if (outcome.status === "failed") return { ...seen, error: outcome.error.message };
    const { result } = outcome;
    if (!result) return seen;
    const related = result._meta?.[RELATED] ?? {};
    return { ...seen, text: result.content[0].text, isError: result.isError ?? false, related };
}

const call = (name, params = {}, options = prefer) => session.callTool(name, params, options);

async function code(work) {
    try {
        return await work();
    } catch (error) {
        return { code: error.code ?? error.cause?.code };
    }
}

const scenarios = {
    async created() {
        const execution = await call("book", { topic: "tea" });
        const { raw } = await session.task(execution.handle.taskId).snapshot();
        await execution.detach();
        return raw;
    },
    result: async () => followed(await call("book", { topic: "tea" })),
    async input() {
        asked = [];
        const seen = await followed(await call("order", { title: "Tea" }));
        return { ...seen, asked };
    },
    async cancelled() {
        const execution = await call("forever");
        await execution.cancel();
        return followed(execution);
    },
    error: async () => followed(await call("misprint")),
    unknown: () => code(() => session.task("no-such-task").snapshot()),
    async list() {
        const execution = await call("book", { topic: "tea" });
        const { tasks } = await session.listTasks();
        await execution.detach();
        return { found: tasks.some((one) => one.taskId === execution.handle.taskId) };
    },
    async resumed() {
        const execution = await call("book", { topic: "tea" });
        let reference;
        await execution.handoff((made) => {
            reference = made;
        });
        const other = await connected();
        const seen = await followed(await other.session.resumeTask(reference));
        await other.session.close();
        await other.client.close();
        return seen;
    },
};

function within(promise) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error("it took too long")), SCENARIO_MS);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

for (const scenario of spec.scenarios) {
    try {
        console.log(JSON.stringify({ scenario, seen: await within(scenarios[scenario]()) }));
    } catch (error) {
        console.log(JSON.stringify({ scenario, failed: String(error.stack ?? error) + String(error.cause ?? "") }));
    }
}
await session.close();
await client.close();
