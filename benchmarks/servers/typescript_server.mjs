// The server of the benchmarks on the official TypeScript SDK, 2.x, by its public functions.
//
//     node typescript_server.mjs HOME http | http-stream | session | session-stream | stdio | one [TOOLS]
//
// HOME is the folder where the SDK and its adapter for Node are installed. `http` keeps nothing,
// `session` has sessions; they answer in JSON, or in event streams. `one` is stdio with one tool. Rules: imports nothing of ours.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [home, way, tools] = process.argv.slice(2);
const resolve = createRequire(pathToFileURL(`${home}/`)).resolve;
const load = name => import(pathToFileURL(resolve(name)).href.replace(/\.cjs$/, '.mjs'));
const { McpServer, createMcpHandler } = await load('@modelcontextprotocol/server');
const { z } = await import(pathToFileURL(resolve('zod')).href);

const BLOB = 'x'.repeat(1024 * 1024);
const STEPS = 10;
const number = z.object({ result: z.number().int() });
const string = z.object({ result: z.string() });
const pair = z.object({ a: z.number().int(), b: z.number().int() });
const text = z.object({ text: z.string() });
const place = z.object({ city: z.string(), days: z.number().int().default(3) });

const answer = value => ({ content: [{ type: 'text', text: String(value) }], structuredContent: { result: value } });

function make() {
    const server = new McpServer({ name: 'bench', version: '1.0' });
    const two = { description: 'Add two numbers.', inputSchema: pair, outputSchema: number };
    server.registerTool('add', two, async ({ a, b }) => answer(a + b));
    if (way === 'one') return server;
    server.registerTool('add_sync', two, ({ a, b }) => answer(a + b));
    const long = { description: 'How long a text is.', inputSchema: text, outputSchema: number };
    server.registerTool('length', long, async ({ text }) => answer(text.length));
    server.registerTool('blob', { description: 'A mebibyte.', outputSchema: string }, async () => answer(BLOB));
    const steps = { description: 'Ten steps, each reported.', outputSchema: string };
    server.registerTool('steps', steps, async ctx => {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        for (let progress = 1; progress <= STEPS; progress++) {
            const params = { progressToken, progress, total: STEPS };
            await ctx.mcpReq.notify({ method: 'notifications/progress', params });
        }
        return answer('done');
    });
    const more = {
        description: 'The highest temperatures of the coming days.',
        inputSchema: place,
        outputSchema: string,
    };
    for (let nth = 0; nth < Number(tools ?? 0); nth++)
        server.registerTool(`tool_${String(nth).padStart(5, '0')}`, more, async ({ city, days }) =>
            answer(`${city}: ${days}`),
        );
    return server;
}

async function serveHttp() {
    const node = await load('@modelcontextprotocol/node');
    const modern = node.toNodeHandler(
        createMcpHandler(make, { legacy: 'reject', responseMode: way === 'http-stream' ? 'auto' : 'json' }),
    );
    const sessions = new Map();
    async function inSession(request, response) {
        const id = request.headers['mcp-session-id'];
        if (id) return sessions.get(id).handleRequest(request, response);
        const transport = new node.NodeStreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            enableJsonResponse: way !== 'session-stream',
            onsessioninitialized: id => sessions.set(id, transport),
        });
        await make().connect(transport);
        return transport.handleRequest(request, response);
    }
    const hosts = node.localhostHostValidation();
    const origins = node.localhostOriginValidation();
    const listener = createServer((request, response) => {
        if (!hosts(request, response) || !origins(request, response)) return;
        const era = request.headers['mcp-protocol-version'];
        (era === '2026-07-28' ? modern : inSession)(request, response);
    });
    listener.keepAliveTimeout = 60_000; // as the others
    listener.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
    process.on('SIGTERM', () => process.exit(0));
}

if (way === 'stdio' || way === 'one') {
    const { serveStdio } = await load('@modelcontextprotocol/server/stdio');
    serveStdio(make);
} else {
    await serveHttp();
}
