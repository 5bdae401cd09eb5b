package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestBadArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args, want string
	}{
		{"", "no part"},
		{"coffee", "no part"},
		{"reads,coffee", "no part"},
		{"all more", "unexpected arguments"},
		{"all --only=coffee", "no part"},
		{"reads --rounds=x", "invalid value"},
		{"all --rounds=-1", "want at least 1"},
		{"queue --quick --tasks=5000", "want 1 to 2500"},
		{"overload --step=100ms", "want at least 1s"},
	} {
		err := bench(t.Context(), strings.Fields(test.args), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.args, err, test.want)
		}
	}
}

func TestHelpNamesTheFlags(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	if err := bench(t.Context(), []string{"-h"}, io.Discard, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{"-rounds", "-tasks", "-json", "-quick", "-only", "backlog"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("no %s in:\n%s", want, &help)
		}
	}
}

func TestPartsAreChosen(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"queue": "throughput wake cost snapshot backlog", "backlog,reads": "reads backlog", "memory,queue": "memory throughput wake cost snapshot backlog",
		"queue --only wake": "wake", "once": "once", "overload": "classes loads slow herd", "push,wake": "wake deliveries latency mixture audience producer neighbours failover",
		"index": "reads plain rows endpoint fanout broadcast cluster refill memory friends batches save",
		"all":   "reads plain large rows endpoint fanout broadcast cluster refill memory friends batches save throughput wake cost snapshot once deliveries latency mixture audience producer neighbours failover classes loads slow herd pace backlog",
	} {
		o, err := parseOptions(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range o.parts {
			names = append(names, p.name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}
