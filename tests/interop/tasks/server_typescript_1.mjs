// Tools that run as tasks on the official TypeScript SDK 1.x, by its experimental API.
//
//     node server_typescript_1.mjs HOME stdio | http
//
// HOME is the folder where the SDK is installed. Rules: imports nothing of ours.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";

const [home, way] = process.argv.slice(2);
const require = createRequire(`${home}/package.json`);
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StdioServerTransport } = require("@modelcontextprotocol/sdk/server/stdio.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { InMemoryTaskMessageQueue, InMemoryTaskStore } = require("@modelcontextprotocol/sdk/experimental/tasks");
const { ElicitResultSchema } = require("@modelcontextprotocol/sdk/types.js");
const { z } = require("zod");

const CHAPTER_MS = 200;
const POLL_MS = 100;
const said = (text, isError = false) => ({ content: [{ type: "text", text }], isError });
const taskStore = new InMemoryTaskStore();
const taskMessageQueue = new InMemoryTaskMessageQueue();

/** A tool whose task does this work; a result with an error is a failed task. */
function tool(server, name, inputSchema, work, taskSupport = "required") {
    const handler = {
        async createTask(given, extra) {
            const store = extra.taskStore;
            const task = await store.createTask({ ttl: extra.taskRequestedTtl, pollInterval: POLL_MS });
            const keep = (result) => store.storeTaskResult(task.taskId, result.isError ? "failed" : "completed", result);
            // What a cancelled task still returns is refused by the store.
            work(given, extra, task.taskId)
                .catch((error) => said(String(error), true))
                .then((result) => result && keep(result))
                .catch(() => {});
            return { task };
        },
        getTask: (given, extra) => extra.taskStore.getTask(extra.taskId),
        getTaskResult: (given, extra) => extra.taskStore.getTaskResult(extra.taskId),
    };
    server.experimental.tasks.registerToolTask(name, { inputSchema, execution: { taskSupport } }, handler);
}

function make() {
    const capabilities = { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } };
    const server = new McpServer({ name: "press", version: "1.0" }, { capabilities, taskStore, taskMessageQueue });
    tool(server, "book", { topic: z.string() }, async ({ topic }, extra, taskId) => {
        await extra.taskStore.updateTaskStatus(taskId, "working", "chapter 1");
        await new Promise((resolve) => setTimeout(resolve, CHAPTER_MS));
        return said(`a book about ${topic}`);
    }, "optional");
    tool(server, "order", { title: z.string() }, async ({ title }, extra, taskId) => {
        const params = {
            mode: "form",
            message: `How many copies of ${title}?`,
            requestedSchema: { type: "object", properties: { value: { type: "integer" } }, required: ["value"] },
        };
        const request = { method: "elicitation/create", params };
        const answer = await extra.sendRequest(request, ElicitResultSchema, { relatedTask: { taskId } });
        return said(`${answer.content.value} copies of ${title}`);
    });
    tool(server, "forever", {}, async () => undefined);
    tool(server, "misprint", {}, async () => said("out of paper", true));
    tool(server, "fire", {}, async () => {
        throw new Error("the press burns");
    });
    return server;
}

const sessions = new Map();

async function answer(incoming, outgoing) {
    const id = incoming.headers["mcp-session-id"];
    if (id && !sessions.has(id)) return void outgoing.writeHead(404).end();
    let transport = sessions.get(id);
    if (!transport) {
        transport = new StreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: (made) => sessions.set(made, transport),
        });
        await make().connect(transport);
    }
    await transport.handleRequest(incoming, outgoing);
}

if (way === "stdio") {
    await make().connect(new StdioServerTransport());
} else {
    const listener = createServer(answer);
    listener.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
    process.on("SIGTERM", () => process.exit(0));
}
