//go:build unix

package httpserver

import "golang.org/x/sys/unix"

// defaultConnections is the bound for the limit of files that this process has.
func defaultConnections() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return maxConnections
	}
	return connectionsFor(uint64(limit.Cur)) //nolint:unconvert // it is signed on FreeBSD
}
