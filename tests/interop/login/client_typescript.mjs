// The official TypeScript SDK, 1.x or 2.x, as a client that logs in and stays logged in.
//
//     node client_typescript.mjs FOLDER '{"url": "http://...", "era": "2026-07-28", "clock": "/..."}'
//
// FOLDER is where @modelcontextprotocol/client (2.x) or @modelcontextprotocol/sdk (1.x) is installed.
// Reads the commands of client_mcp.py and prints the same lines. The credentials are in memory, and
// each connection has a new provider of them, as after a restart.
//
// Rules: judges nothing. Imports nothing of ours.

import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const folder = process.argv[2];
const spec = JSON.parse(process.argv[3]);
const require = createRequire(`${folder}/package.json`);
const second = existsSync(`${folder}/node_modules/@modelcontextprotocol/client`);
const sdk = second
    ? require("@modelcontextprotocol/client")
    : {
          ...require("@modelcontextprotocol/sdk/client/index.js"),
          ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
          ...require("@modelcontextprotocol/sdk/client/auth.js"),
      };
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = sdk;
const REDIRECT = "http://127.0.0.1:43118/callback";

const realNow = Date.now;
Date.now = () => realNow() + readFileSync(spec.clock).readDoubleLE(0) * 1000;

const report = (line) => console.log(JSON.stringify(line));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => {
    const { value, done } = await lines.next();
    return done ? undefined : JSON.parse(value);
};

const kept = {};

/** The provider of one connection. */
function provider() {
    return {
        redirectUrl: REDIRECT,
        clientMetadata: {
            client_name: "TypeScript SDK",
            redirect_uris: [REDIRECT],
            grant_types: ["authorization_code", "refresh_token"],
            response_types: ["code"],
            token_endpoint_auth_method: "none",
        },
        state: () => (kept.state = crypto.randomUUID()),
        clientInformation: () => kept.client,
        saveClientInformation: (client) => void (kept.client = client),
        tokens: () => kept.tokens,
        saveTokens: (tokens) => void (kept.tokens = tokens),
        redirectToAuthorization: (url) => void (kept.url = url.href),
        saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
        codeVerifier: () => kept.verifier,
        saveDiscoveryState: (state) => void (kept.discovery = state),
        discoveryState: () => kept.discovery,
        invalidateCredentials(scope) {
            if (scope === "all" || scope === "client") delete kept.client;
            if (scope === "all" || scope === "tokens") delete kept.tokens;
            if (scope === "all" || scope === "discovery") delete kept.discovery;
        },
    };
}

let client;
let transport;

/** Let the user log in at the page that the SDK wants to open. */
async function logIn() {
    report({ open: kept.url });
    const { callback } = await read();
    const found = new URL(callback).searchParams;
    if (found.get("state") !== kept.state) throw new Error("the state is another one");
    await (second ? transport.finishAuth(found) : transport.finishAuth(found.get("code")));
}

async function connect() {
    for (let attempt = 0; ; attempt++) {
        transport = new StreamableHTTPClientTransport(new URL(spec.url), { authProvider: provider() });
        const options = second ? { versionNegotiation: { mode: spec.era === "2026-07-28" ? "auto" : "legacy" } } : {};
        client = new Client({ name: "interop", version: "1" }, options);
        try {
            await client.connect(transport);
            return spec.era;
        } catch (error) {
            if (!unauthorized(error) || attempt) throw error;
            await logIn();
        }
    }
}

/** Whether a login is needed; 2.x wraps the error of a probe. */
function unauthorized(error) {
    for (let one = error; one; one = one.cause) if (one instanceof UnauthorizedError) return true;
    return false;
}

/** Whether a call of 1.x was sent before another one refreshed the token, and was refused after that. */
function overtaken(error) {
    return !second && error.message.includes("401 after successful authentication");
}

async function call(calls) {
    for (let attempt = 0; ; attempt++) {
        const all = Array.from({ length: calls }, () => client.callTool({ name: "whoami", arguments: {} }));
        const results = await Promise.allSettled(all);
        const errors = results.filter(({ status }) => status === "rejected").map(({ reason }) => reason);
        if (!errors.length) return results.map(({ value }) => value.content[0].text);
        const others = errors.filter((one) => !unauthorized(one) && !overtaken(one));
        if (others.length || attempt) throw others[0] ?? errors[0];
        if (errors.some(unauthorized)) await logIn();
    }
}

const commands = { connect, call, close: async () => (await client.close(), "closed") };
for (let command; (command = await read()); ) {
    try {
        report({ done: await commands[command.do](command.calls) });
    } catch (error) {
        report({ failed: `${error.stack ?? error}` });
    }
}
process.exit(0);
