package endtoend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // its errors come back from its methods
	servertest.Main(withProgram{m})
}

// programFolder holds the program while the tests run.
var programFolder string

// withProgram runs the tests with a folder for the program.
type withProgram struct{ *testing.M }

func (m withProgram) Run() int {
	var err error
	if programFolder, err = os.MkdirTemp("", "activityd-"); err == nil {
		code := m.M.Run()
		if err = os.RemoveAll(programFolder); err == nil {
			return code
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// seedFor returns the seed of a test: the value of ACTIVITYD_SEED, or else a new seed.
func seedFor(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64N(1_000_000)
	if text := os.Getenv("ACTIVITYD_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("ACTIVITYD_SEED: %v", err)
		}
	}
	t.Logf("to repeat: ACTIVITYD_SEED=%d", seed)
	return seed
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var eventually = servertest.Eventually
