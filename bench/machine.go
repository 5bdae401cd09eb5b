package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// machine says what was measured on and when.
type machine struct {
	Date          string `json:"date"`
	CPU           string `json:"cpu"`
	Cores         int    `json:"cores"`
	Memory        string `json:"memory"`
	Kernel        string `json:"kernel"`
	Go            string `json:"go"`
	MySQL         string `json:"mysql"`
	MySQLSettings string `json:"mysql_settings"`
	Redis         string `json:"redis"`
	RedisSettings string `json:"redis_settings"`
	Asynq         string `json:"asynq"`
}

func describe(ctx context.Context, g *ground) (machine, error) {
	version, err := redisInfo(ctx, g, "server", "redis_version")
	return machine{
		Date: time.Now().UTC().Format(time.DateOnly), CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		Memory: field("/proc/meminfo", "MemTotal"), Kernel: firstLine("/proc/sys/kernel/osrelease"), Go: runtime.Version(),
		MySQL: g.mysql.Version(), MySQLSettings: mysqlSettings, Redis: version, RedisSettings: g.redisSettings,
		Asynq: versionOf("github.com/hibiken/asynq"),
	}, err
}

// field returns the first value of a name in a file of names and values.
func field(file, name string) string {
	for line := range strings.Lines(contentOf(file)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func firstLine(file string) string {
	line, _, _ := strings.Cut(contentOf(file), "\n")
	return line
}

// contentOf returns what is in a file; nothing when it cannot be read, as where
// there is no /proc.
func contentOf(file string) string {
	text, err := os.ReadFile(file) //nolint:gosec // the callers' constants
	if err != nil {
		return ""
	}
	return string(text)
}

// versionOf returns the version of a module that was built in.
func versionOf(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return ""
}
