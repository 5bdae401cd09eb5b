//go:build unix && !linux

package endtoend_test

// hasConnection reports whether a process has the end of a TCP connection that has a local port.
// Here that is not known: what happens to a process may then have happened to any connection.
func hasConnection(int, int) bool { return false }
