//go:build !unix

package httpserver

// defaultConnections is the bound where the system has no limit of files.
func defaultConnections() int { return maxConnections }
