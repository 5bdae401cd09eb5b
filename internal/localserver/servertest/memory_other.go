//go:build !linux

package servertest

// There is no folder in memory that each machine has.
const memoryFolder = ""

func hasRoom(string) bool { return false }
