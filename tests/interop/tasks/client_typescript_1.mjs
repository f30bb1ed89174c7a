// The experimental tasks of the official TypeScript SDK 1.x, as a client of our_server.py.
//
//     node client_typescript_1.mjs FOLDER '{"era": "2025-11-25", "http": "http://..."}'
//
// FOLDER is where @modelcontextprotocol/sdk is installed. Plays the scenarios of client_mcp_1.py
// under the same names, with `callToolStream`, and prints the same lines.
//
// Rules: judges nothing. Imports nothing of ours.

import { createRequire } from "node:module";

const folder = process.argv[2];
const spec = JSON.parse(process.argv[3]);
const require = createRequire(`${folder}/package.json`);
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { CallToolResultSchema, ElicitRequestSchema } = require("@modelcontextprotocol/sdk/types.js");

const SCENARIO_MS = 30_000;
const RELATED = "io.modelcontextprotocol/related-task";
let asked = [];

const client = new Client({ name: "interop", version: "1" }, { capabilities: { elicitation: { form: {} } } });
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    asked.push(params.message);
    return { action: "accept", content: { value: 3 } };
});
const tasks = client.experimental.tasks;

const resultOf = (result) => ({
    text: result.content[0].text, isError: result.isError ?? false, related: result._meta?.[RELATED] ?? {},
});

/** A call from the first message of its stream to the last; a task, also if the tool can do without. */
async function streamed(name, args = {}) {
    const seen = { statuses: [] };
    const stream = tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, { task: {} });
    for await (const message of stream) {
        if (message.type === "taskCreated") seen.taskId = message.task.taskId;
        if (message.type === "taskStatus") seen.statuses.push(message.task.status);
        if (message.type === "error") seen.error = message.error.message;
        if (message.type === "result") Object.assign(seen, resultOf(message.result));
    }
    return seen;
}

/** The task of a call that is not followed to its end. */
async function started(name, args = {}) {
    for await (const message of tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, { task: {} })) {
        if (message.type === "taskCreated") return message.task;
        throw message.error;
    }
}

const status = async (taskId) => (await tasks.getTask(taskId)).status;

async function code(call) {
    try {
        return await call();
    } catch (error) {
        return { code: error.code };
    }
}

const scenarios = {
    created: () => started("book", { topic: "tea" }),
    result: () => streamed("book", { topic: "tea" }),
    async input() {
        asked = [];
        const seen = await streamed("order", { title: "Tea" });
        seen.statuses.push(await status(seen.taskId));
        return { ...seen, asked };
    },
    async cancelled() {
        const { taskId } = await started("forever");
        const cancelled = await tasks.cancelTask(taskId);
        return { statuses: [cancelled.status, await status(taskId)] };
    },
    async error() {
        const { taskId } = await started("misprint");
        // It blocks until the task has ended.
        const result = await tasks.getTaskResult(taskId, CallToolResultSchema);
        return { taskId, statuses: [await status(taskId)], ...resultOf(result) };
    },
    unknown: () => code(() => tasks.getTask("no-such-task")),
    // `callTool` of the SDK refuses it by itself, so that the request is sent as it is.
    plain: () => code(() => client.request(
        { method: "tools/call", params: { name: "order", arguments: { title: "Tea" } } }, CallToolResultSchema,
    )),
    async list() {
        const { taskId } = await started("book", { topic: "tea" });
        const { tasks: found } = await tasks.listTasks();
        return { found: found.some((one) => one.taskId === taskId) };
    },
};

function within(promise) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error("it took too long")), SCENARIO_MS);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const [command, ...args] = spec.stdio ?? [];
await client.connect(
    spec.http ? new StreamableHTTPClientTransport(new URL(spec.http)) : new StdioClientTransport({ command, args }),
);
await client.listTools();
for (const scenario of spec.scenarios) {
    try {
        console.log(JSON.stringify({ scenario, seen: await within(scenarios[scenario]()) }));
    } catch (error) {
        console.log(JSON.stringify({ scenario, failed: String(error.stack ?? error) }));
    }
}
await client.close();
