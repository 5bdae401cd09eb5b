// Package localserver starts private servers, MariaDB or MySQL and Redis, in a
// temporary folder: for the tests, which need servers that they may kill, and for the
// demo, which needs a site of its own.
//
// A server listens on a unix socket only, so that it takes no port and cannot be reached
// by the network, and it reads no configuration but its command line, so that it is the
// same on every machine. It belongs to the process that started it: Close stops it and
// removes its folder with everything in it, and when the process dies without having
// closed it, the kernel kills the server (on Linux; the folder then stays behind).
//
// # States
//
//	Start ──> running ──Pause──> paused ──Resume──> running
//	             │                  │
//	             └──────Kill────────┴──> dead ──Restart──> running
//
// Close works in every state, and more than once. All methods are safe for
// concurrent use.
package localserver
