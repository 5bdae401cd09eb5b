package once_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // its errors come back from its methods
	if task := os.Getenv(processVariable); task != "" {
		if err := beProcess(context.Background(), task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	servertest.Main(m) // which finds goroutines that are left
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
