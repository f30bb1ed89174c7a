// The official Go SDK on the other side: a server and a client, in one program.
//
//	peer server stdio | http | json | stateless
//	peer client '{"era": "2026-07-28", "http": "http://...", "leave_out": []}'
//
// The server has the things of tests/interop/servers; over HTTP it prints its address. The client
// plays the scenarios of drive_mcp.py at the everything-server, under the same names, and prints the
// same lines.
package main

import (
	"log"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: peer server WAY | peer client SPEC")
	}
	if os.Args[1] == "server" {
		serve(os.Args[2])
	} else {
		drive(os.Args[2])
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
