//! The official Rust SDK, rmcp, on the other side: a server and a client, in one program.
//!
//!     server server stdio | http | json | stateless
//!     server client '{"era": "2026-07-28", "http": "http://...", "leave_out": []}'
//!
//! The server has the things of tests/interop/servers; over HTTP it prints its address. The client
//! plays the scenarios of drive_mcp.py at the everything-server, under the same names, and prints the
//! same lines. `tasks-server` and `tasks-client` are the same for tests/interop/tasks.
#![allow(deprecated)]

mod client;
mod server;
mod tasks;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().collect();
    match given[1].as_str() {
        "server" => server::serve(&given[2]).await,
        "tasks-server" => tasks::serve(&given[2]).await,
        "tasks-client" => tasks::drive(&given[2]).await,
        _ => client::drive(&given[2]).await,
    }
}
