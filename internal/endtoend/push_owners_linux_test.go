package endtoend_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// hasConnection reports whether a process has the end of a TCP connection that has a local port.
func hasConnection(pid, port int) bool {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return false
	}
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(string(table)) {
		const local, inode = 1, 9 // columns
		fields := strings.Fields(line)
		if len(fields) <= inode || !strings.HasSuffix(fields[local], suffix) || fields[inode] == "0" {
			continue
		}
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			return false
		}
		for _, file := range files {
			if to, err := os.Readlink(file); err == nil && to == "socket:["+fields[inode]+"]" {
				return true
			}
		}
	}
	return false
}
