//go:build !linux

package servertest

import "os"

// newMemoryFolder returns nil: there is no folder in memory that each machine has.
func newMemoryFolder() *os.File { return nil }
