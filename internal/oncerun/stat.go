package oncerun

import (
	"fmt"
	"strings"
)

// Stat is a part of what Linux says of a process in /proc/PID/stat; zero: it has ended.
type Stat struct {
	State                  string // one letter: Z has ended, and its parent has not noticed it
	Parent, Group, Session int
}

// ParseStat reads it from behind the name, in which a command may have anything.
func ParseStat(text string) (is Stat) {
	_, _ = fmt.Sscan(text[strings.LastIndexByte(text, ')')+1:], &is.State, &is.Parent, &is.Group, &is.Session)
	return is
}
