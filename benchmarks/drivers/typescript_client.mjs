// The client of the official TypeScript SDK, 2.x: over HTTP, or on a server in memory.
//
//     node typescript_client.mjs CLIENT SERVER URL | memory
//
// CLIENT and SERVER are the folders where the two packages are installed. Takes the lines of
// driving.py. Rules: imports nothing of ours.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const [clientHome, serverHome, target] = process.argv.slice(2);
const loader = home => {
    const resolve = createRequire(pathToFileURL(`${home}/`)).resolve;
    return name => import(pathToFileURL(resolve(name)).href.replace(/\.cjs$/, '.mjs'));
};
const ofClient = loader(clientHome);
const { Client, StreamableHTTPClientTransport, InMemoryTransport } = await ofClient('@modelcontextprotocol/client');

const client = new Client({ name: 'bench', version: '1.0' }, { versionNegotiation: { mode: 'auto' } });
if (target === 'memory') {
    const ofServer = loader(serverHome);
    const { McpServer } = await ofServer('@modelcontextprotocol/server');
    const { z } = await import(
        pathToFileURL(createRequire(pathToFileURL(`${serverHome}/`)).resolve('zod')).href
    );
    const [near, far] = InMemoryTransport.createLinkedPair();
    const server = new McpServer({ name: 'bench', version: '1.0' });
    const inputSchema = z.object({ a: z.number().int(), b: z.number().int() });
    const outputSchema = z.object({ result: z.number().int() });
    server.registerTool('add', { description: 'Add two numbers.', inputSchema, outputSchema }, async ({ a, b }) => ({
        content: [{ type: 'text', text: String(a + b) }],
        structuredContent: { result: a + b },
    }));
    await server.connect(far);
    await client.connect(near);
} else {
    await client.connect(new StreamableHTTPClientTransport(new URL(target)));
}

const params = { name: 'add', arguments: { a: 3, b: 4 } };

async function round({ seconds, flight }) {
    const begun = performance.now();
    const end = begun + seconds * 1000;
    let calls = 0;
    const loop = async () => {
        do {
            const result = await client.callTool(params);
            if (result.content[0].text !== '7') throw new Error(`${JSON.stringify(result)} instead of 7`);
            calls += 1;
        } while (performance.now() < end);
    };
    await Promise.all(Array.from({ length: flight }, loop));
    return { calls, seconds: (performance.now() - begun) / 1000 };
}

console.log(JSON.stringify({ revision: String(client.getNegotiatedProtocolVersion?.() ?? '') }));
for await (const line of createInterface({ input: process.stdin }))
    console.log(JSON.stringify(await round(JSON.parse(line))));
process.exit(0);
