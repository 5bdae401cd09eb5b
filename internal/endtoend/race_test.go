//go:build race

package endtoend_test

func init() { buildFlags = append(buildFlags, "-race") }
