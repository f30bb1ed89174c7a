// The things of a server on the official TypeScript SDK, 2.x, by its public functions.
//
//     node typescript.mjs HOME stdio | http
//
// HOME is the folder where the SDK is installed. Over HTTP one address serves both eras, those with
// a handshake in sessions. Rules: imports nothing of ours.

import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { Readable } from 'node:stream';
import { pathToFileURL } from 'node:url';

const [home, way] = process.argv.slice(2);
const resolve = createRequire(pathToFileURL(`${home}/`)).resolve;
const load = name => import(pathToFileURL(resolve(name)).href.replace(/\.cjs$/, '.mjs'));
const sdk = await load('@modelcontextprotocol/server');
const { serveStdio } = await load('@modelcontextprotocol/server/stdio');
const { z } = await import(pathToFileURL(resolve('zod')).href);
const { McpServer, ResourceTemplate, acceptedContent, completable, inputRequired, inputResponse } = sdk;

const PIXEL =
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const SILENCE = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQAAAAA=';
const LANGUAGES = ['pascal', 'python', 'go'];
const PATIENCE_MS = 20_000;

const text = words => ({ content: [{ type: 'text', text: words }] });
const startingWith = prefix => LANGUAGES.filter(language => language.startsWith(prefix ?? ''));

let changed = false;
let ended = Promise.resolve('never began');
let handler;

function make() {
    const server = new McpServer(
        { name: 'equivalent', version: '1.0' },
        {
            instructions: 'Everything that a client can ask for.',
            capabilities: { logging: {}, tools: { listChanged: true }, resources: { subscribe: true } },
        },
    );
    returning(server);
    running(server);
    asking(server);
    others(server);
    return server;
}

// ---------------------------------------------------------------- tools: what they return

function returning(server) {
    const sum = z.object({ result: z.number().int() });
    server.registerTool(
        'add',
        { description: 'Add two numbers.', inputSchema: z.object({ a: z.number(), b: z.number() }), outputSchema: sum },
        ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { result: a + b } }),
    );
    server.registerTool(
        'greet',
        { description: 'Greet somebody.', inputSchema: z.object({ name: z.string() }) },
        ({ name }) => text(`Hello, ${name}`),
    );
    const weather = z.object({ city: z.string(), celsius: z.number() });
    server.registerTool(
        'forecast',
        { description: 'A forecast.', inputSchema: z.object({ city: z.string() }), outputSchema: weather },
        ({ city }) => {
            const found = { city, celsius: 21.5 };
            return { ...text(JSON.stringify(found)), structuredContent: found };
        },
    );
    const three = z.object({ result: z.array(z.number().int()) });
    server.registerTool('numbers', { description: 'Three numbers.', outputSchema: three }, () => ({
        ...text('[1,2,3]'),
        structuredContent: { result: [1, 2, 3] },
    }));
    server.registerTool('picture', { description: 'A picture.' }, () => ({
        content: [{ type: 'image', data: PIXEL, mimeType: 'image/png' }],
    }));
    server.registerTool('sound', { description: 'A sound.' }, () => ({
        content: [{ type: 'audio', data: SILENCE, mimeType: 'audio/wav' }],
    }));
    server.registerTool('document', { description: 'A text that comes along.' }, () => ({
        content: [
            { type: 'resource', resource: { uri: 'test://inside', mimeType: 'text/plain', text: 'Inside.' } },
        ],
    }));
    server.registerTool('link', { description: 'Where a text is.' }, () => ({
        content: [{ type: 'resource_link', name: 'text', uri: 'test://text' }],
    }));
    const where = z.string().meta({ 'x-mcp-header': 'Region' });
    server.registerTool(
        'region',
        { description: 'Say where.', inputSchema: z.object({ region: where }) },
        ({ region }) => text(`Region ${region}`),
    );
    server.registerTool('fail', { description: 'Fail.' }, () => {
        throw new Error('It cannot be done');
    });
}

// ---------------------------------------------------------------- tools: while they run

const report = (ctx, progress, total, message) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    if (progressToken === undefined) return undefined;
    const params = { progressToken, progress, total, message };
    return ctx.mcpReq.notify({ method: 'notifications/progress', params });
};

function running(server) {
    server.registerTool('steps', { description: 'Three steps.' }, async ctx => {
        for (const step of [1, 2, 3]) await report(ctx, step, 3, `step ${step}`);
        return text('done');
    });
    server.registerTool('talk', { description: 'Say a word on the side.' }, async ctx => {
        await ctx.mcpReq.log('info', 'a word');
        return text('said');
    });
    server.registerTool('wait', { description: 'Wait to be cancelled.' }, async ctx => {
        ended = new Promise(end => {
            const timer = setTimeout(() => end('waited to the end'), PATIENCE_MS);
            ctx.mcpReq.signal.addEventListener('abort', () => {
                clearTimeout(timer);
                end('was cancelled');
            });
        });
        await report(ctx, 1, 2, 'waiting');
        return text(await ended);
    });
    server.registerTool('waited', { description: 'How the last wait has ended.' }, async () => text(await ended));
    server.registerTool('drop', { description: 'Drop the stream.' }, async ctx => {
        ctx.http?.closeSSE?.();
        await new Promise(done => setTimeout(done, 100));
        return text('back');
    });
    const count = z.object({ result: z.number().int() });
    server.registerTool('replays', { description: 'How often somebody came back.', outputSchema: count }, () => ({
        ...text(String(events.replays)),
        structuredContent: { result: events.replays },
    }));
    const more = () => server.registerTool('extra', { description: 'Came later.' }, () => text('extra'));
    if (changed) more();
    server.registerTool('change', { description: 'Have a tool more.' }, () => {
        if (!changed) more();
        changed = true;
        handler?.notify.toolsChanged();
        return text('changed');
    });
    server.registerTool('touch', { description: 'Change a text.' }, async () => {
        await server.server.sendResourceUpdated({ uri: 'test://text' });
        handler?.notify.resourceUpdated('test://text');
        return text('touched');
    });
    for (const method of ['resources/subscribe', 'resources/unsubscribe'])
        server.server.setRequestHandler(method, () => ({}));
}

// ---------------------------------------------------------------- tools that ask

function asking(server) {
    const person = z.object({ name: z.string(), polite: z.boolean().default(true) });
    server.registerTool('ask_name', { description: 'Ask for a name.' }, ctx => {
        const who = acceptedContent(ctx.mcpReq.inputResponses, 'asked', person);
        if (who) return text(`Hello, ${who.name}, ${who.polite ? 'polite' : 'rude'}`);
        const asked = inputRequired.elicit({ message: 'Who are you?', requestedSchema: person });
        return inputRequired({ inputRequests: { asked } });
    });
    server.registerTool('ask_model', { description: 'Ask a model.' }, ctx => {
        const said = inputResponse(ctx.mcpReq.inputResponses, 'asked');
        if (said.kind === 'sampling') return text(`The model says: ${said.result.content.text}`);
        const messages = [{ role: 'user', content: { type: 'text', text: 'Which city?' } }];
        const asked = inputRequired.createMessage({ messages, maxTokens: 100 });
        return inputRequired({ inputRequests: { asked } });
    });
    server.registerTool('ask_roots', { description: 'Ask for folders.' }, ctx => {
        const found = inputResponse(ctx.mcpReq.inputResponses, 'asked');
        if (found.kind === 'roots') return text(`Roots: ${found.roots.map(root => root.uri).join(', ')}`);
        return inputRequired({ inputRequests: { asked: inputRequired.listRoots() } });
    });
}

// ---------------------------------------------------------------- resources and prompts

function others(server) {
    const plain = { mimeType: 'text/plain' };
    server.registerResource('text', 'test://text', plain, uri => ({
        contents: [{ uri: uri.href, ...plain, text: 'A text.' }],
    }));
    server.registerResource('pixel', 'test://pixel', { mimeType: 'image/png' }, uri => ({
        contents: [{ uri: uri.href, mimeType: 'image/png', blob: PIXEL }],
    }));
    const notes = new ResourceTemplate('test://notes/{name}', { list: undefined, complete: { name: startingWith } });
    server.registerResource('note', notes, plain, (uri, { name }) => ({
        contents: [{ uri: uri.href, ...plain, text: `Note ${name}.` }],
    }));
    const user = words => ({ messages: [{ role: 'user', content: { type: 'text', text: words } }] });
    server.registerPrompt('hello', { description: 'Say hello.' }, () => user('Say hello.'));
    const argsSchema = z.object({ code: z.string(), language: completable(z.string(), startingWith).optional() });
    server.registerPrompt('review', { description: 'Review some code.', argsSchema }, ({ code, language }) =>
        user(`Review this ${language ?? 'python'}: ${code}`),
    );
}

// ---------------------------------------------------------------- over HTTP

const sessions = new Map();

// What was sent on the streams, for clients that come back for it.
const events = {
    sent: [],
    replays: 0,
    async storeEvent(stream, message) {
        return String(this.sent.push([stream, message]));
    },
    async getStreamIdForEventId(id) {
        return this.sent[id - 1]?.[0];
    },
    async replayEventsAfter(id, { send }) {
        this.replays += 1;
        const [stream] = this.sent[id - 1];
        for (const [nth, [other, message]] of this.sent.entries())
            if (nth >= id && other === stream && message.jsonrpc) await send(String(nth + 1), message);
        return stream;
    },
};

async function inSession(request) {
    const id = request.headers.get('mcp-session-id');
    if (id && !sessions.has(id)) return new Response('no such session', { status: 404 });
    if (id) return sessions.get(id).handleRequest(request);
    const transport = new sdk.WebStandardStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        eventStore: events,
        retryInterval: 50,
        onsessioninitialized: id => sessions.set(id, transport),
    });
    await make().connect(transport);
    return transport.handleRequest(request);
}

async function serveHttp() {
    handler = sdk.createMcpHandler(make, { legacy: 'reject' });
    const listener = createServer(async (incoming, outgoing) => {
        const gone = new AbortController();
        outgoing.on('close', () => gone.abort());
        const body = incoming.method === 'POST' ? Readable.toWeb(incoming) : undefined;
        const headers = Object.entries(incoming.headers).filter(([, value]) => typeof value === 'string');
        const url = `http://${incoming.headers.host}${incoming.url}`;
        const options = { method: incoming.method, headers, body, duplex: 'half', signal: gone.signal };
        const request = new Request(url, options);
        const legacy = await sdk.isLegacyRequest(request.clone());
        const answer = await (legacy ? inSession(request) : handler.fetch(request));
        outgoing.writeHead(answer.status, Object.fromEntries(answer.headers)).flushHeaders();
        if (!answer.body) return void outgoing.end();
        const reader = answer.body.getReader();
        outgoing.on('close', () => reader.cancel().catch(() => {}));
        for (let step = await reader.read(); !step.done; step = await reader.read())
            if (!outgoing.write(step.value)) await Promise.race([once(outgoing, 'drain'), once(outgoing, 'close')]);
        outgoing.end();
    });
    listener.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
    process.on('SIGTERM', () => process.exit(0));
}

if (way === 'stdio') serveStdio(make);
else await serveHttp();
