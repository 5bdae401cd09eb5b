package oncerun

import (
	"fmt"
	"strings"
)

// Stat is a part of a process's state in /proc/PID/stat on Linux; zero: the process has ended.
type Stat struct {
	State                  string // a letter: Z has ended, and its parent has not noticed it
	Parent, Group, Session int
}

// ParseStat reads the fields behind the name. The name of a command may hold any character.
func ParseStat(text string) (is Stat) {
	_, _ = fmt.Sscan(text[strings.LastIndexByte(text, ')')+1:], &is.State, &is.Parent, &is.Group, &is.Session)
	return is
}
