package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// machine is what was measured on, and when.
type machine struct {
	Date          string `json:"date"`
	CPU           string `json:"cpu"`
	Cores         int    `json:"cores"`
	Memory        string `json:"memory"`
	Kernel        string `json:"kernel"`
	Go            string `json:"go"`
	MySQL         string `json:"mysql"`
	MySQLSettings string `json:"mysql_settings"`
	Redis         string `json:"redis"` // its version, after "Valkey " if it is that
	RedisSettings string `json:"redis_settings"`
	Asynq         string `json:"asynq"`
	Redislock     string `json:"redislock"`
	Redsync       string `json:"redsync"`
	APNs2         string `json:"apns2"`
	Failsafe      string `json:"failsafe"`
}

func describe(ctx context.Context, b *backend) (machine, error) {
	version, err := infoField(ctx, b.client, "server", "redis_version")
	if own, noValkey := infoField(ctx, b.client, "server", "valkey_version"); noValkey == nil {
		version = "Valkey " + own // which says a version of Redis that it is like, too
	}
	return machine{
		Date: time.Now().UTC().Format(time.DateOnly), CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		Memory: field("/proc/meminfo", "MemTotal"), Kernel: firstLine("/proc/sys/kernel/osrelease"), Go: runtime.Version(),
		MySQL: b.mysql.Version(), MySQLSettings: mysqlSettings, Redis: version, RedisSettings: redisSettings,
		Asynq: versionOf("github.com/hibiken/asynq"), Redislock: versionOf("github.com/bsm/redislock"), Redsync: versionOf("github.com/go-redsync/redsync/v4"),
		APNs2: versionOf("github.com/sideshow/apns2"), Failsafe: versionOf("github.com/failsafe-go/failsafe-go"),
	}, err
}

func (m machine) write(b *strings.Builder) {
	table(b, "Machine",
		[]string{"date", m.Date},
		[]string{"processor", fmt.Sprintf("%s, %d cores, %s", m.CPU, m.Cores, m.Memory)},
		[]string{"kernel", m.Kernel},
		[]string{"Go, asynq, redislock, redsync, apns2, failsafe-go", strings.Join([]string{m.Go, m.Asynq, m.Redislock, m.Redsync, m.APNs2, m.Failsafe}, ", ")},
		[]string{"MySQL", m.MySQL + ": " + m.MySQLSettings},
		[]string{"Redis", m.Redis + ": " + m.RedisSettings})
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

// contentOf returns the content of a file, or nothing if it cannot be read, as on a
// system without /proc.
func contentOf(file string) string {
	text, err := os.ReadFile(file) //nolint:gosec // a constant of the caller
	if err != nil {
		return ""
	}
	return string(text)
}

// versionOf returns the version of a module that this program was built with.
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
