//go:build !unix

package httpserver

// defaultConnections is for systems that do not count files.
func defaultConnections() int { return mostConnections }
