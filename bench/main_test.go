package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/localserver/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestBadArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args, want string
	}{
		{"", "want a benchmark"},
		{"coffee", "want a benchmark"},
		{"queue --rounds=x", "invalid value"},
		{"all more", "unexpected arguments"},
		{"all --only=coffee", "no part"},
		{"reads --rounds=x", "invalid value"},
		{"queue more", "unexpected arguments"},
		{"queue --quick --tasks=5000", "want at most 4000"},
		{"queue --only=coffee", "want throughput, wake or backlog"},
	} {
		err := bench(t.Context(), strings.Fields(test.args), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.args, err, test.want)
		}
	}
}

func TestHelpNamesTheFlags(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"queue": {"-rounds", "-tasks", "-json", "-quick", "-only"},
		"all":   {"-rounds", "-data", "-json", "-quick", "-only"},
	} {
		var help bytes.Buffer
		if err := bench(t.Context(), []string{name, "-h"}, io.Discard, &help); !errors.Is(err, flag.ErrHelp) {
			t.Fatal(err)
		}
		for _, flag := range want {
			if !strings.Contains(help.String(), flag) {
				t.Errorf("%s: no %s in:\n%s", name, flag, &help)
			}
		}
	}
}
