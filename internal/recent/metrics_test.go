package recent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

func TestEachAnswerIsCounted(t *testing.T) {
	before := metricstest.Gather(t)
	b := newBench(recent.Options{})
	b.contact(11, 900)
	b.contact(12, 800)
	b.read(t, 11, recent.FromIndex)
	b.index.err = index.ErrMissing
	b.read(t, 11, recent.FromDatabase)
	b.store.before = func(context.Context, string) error { return errors.New("no") }
	if _, err := b.Read(t.Context(), me, 10); err == nil {
		t.Fatal("the read succeeded")
	}
	rose := metricstest.Gather(t).Since(before)
	want := metricstest.Samples{
		`activityd_reads_total{result="photos",source="index"}`:    1,
		`activityd_reads_total{result="photos",source="database"}`: 1,
		`activityd_reads_total{result="other",source="none"}`:      1,
		`activityd_read_walks_total{reason="set_missing"}`:         1,
		`activityd_read_seconds{source="index"}`:                   1,
		`activityd_read_seconds{source="database"}`:                1,
		`activityd_read_seconds{source="none"}`:                    1,
	}
	if diff := cmp.Diff(want, rose.Named("activityd_reads_total", "activityd_read_walks_total", "activityd_read_seconds", "activityd_reads_refused_total")); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	for source := range map[string]bool{"index": true, "database": true, "none": true} {
		if took := rose[fmt.Sprintf("activityd_read_seconds_sum{source=%q}", source)]; took <= 0 {
			t.Errorf("%s took %v", source, took)
		}
	}
}

// Reads of the audit are not among the reads of members.
func TestUncountedReads(t *testing.T) {
	before := metricstest.Gather(t)
	b := newBench(recent.Options{Uncounted: true})
	b.contact(11, 900)
	b.index.err = index.ErrMissing
	b.read(t, 11, recent.FromDatabase)
	if rose := metricstest.Gather(t).Since(before).Named("activityd_reads_total", "activityd_read_walks_total", "activityd_read_seconds"); len(rose) > 0 {
		t.Errorf("counted %v", rose)
	}
}

func TestRefusedWalksAreCounted(t *testing.T) {
	before := metricstest.Gather(t)
	b := newBench(recent.Options{Limiter: withoutWalks(t)})
	b.contact(11, 900)
	b.index.err = index.ErrMissing
	if _, err := b.Read(t.Context(), me, 5); !errors.Is(err, recent.ErrBusy) {
		t.Errorf("err %v, want ErrBusy", err)
	}
	rose := metricstest.Gather(t).Since(before)
	if n := rose[`activityd_reads_total{result="busy",source="none"}`]; n != 1 {
		t.Errorf("counted %v refused walks, want 1", n)
	}
}

func TestAnswersAreCountedByTheirKind(t *testing.T) {
	photos := contacts.Album{Contact: &contacts.Profile{ID: 7}}
	walked := func(reason recent.Reason) recent.Answer {
		return recent.Answer{Source: recent.FromDatabase, Album: photos, Trace: recent.Trace{WalkReason: reason}}
	}
	for _, c := range []struct {
		answer               recent.Answer
		err                  error
		source, result, walk string
	}{
		{recent.Answer{Source: recent.FromIndex, Album: photos}, nil, "index", "photos", ""},
		{recent.Answer{Source: recent.FromIndex}, nil, "index", "nothing", ""},
		{walked(recent.SetMissing), nil, "database", "photos", "set_missing"},
		{walked(recent.BestTooOld), nil, "database", "photos", "best_too_old"},
		{recent.Answer{}, contacts.ErrNoMember, "none", "no_member", ""},
		{recent.Answer{}, recent.ErrBusy, "none", "busy", ""},
		{recent.Answer{}, mysql.ErrUnavailable, "none", "unavailable", ""},
		{recent.Answer{}, context.DeadlineExceeded, "none", "timeout", ""},
		{recent.Answer{}, context.Canceled, "none", "cancelled", ""},
		{recent.Answer{}, errors.New("what?"), "none", "other", ""},
	} {
		before := metricstest.Gather(t)
		if c.err != nil {
			c.err = fmt.Errorf("read: %w", c.err)
		}
		recent.Count(c.answer, c.err, time.Millisecond)
		want := metricstest.Samples{
			fmt.Sprintf("activityd_reads_total{result=%q,source=%q}", c.result, c.source): 1,
			fmt.Sprintf("activityd_read_seconds{source=%q}", c.source):                    1,
		}
		if c.walk != "" {
			want[fmt.Sprintf("activityd_read_walks_total{reason=%q}", c.walk)] = 1
		}
		if diff := cmp.Diff(want, metricstest.Gather(t).Since(before).Named("activityd_reads_total", "activityd_read_seconds", "activityd_read_walks_total")); diff != "" {
			t.Errorf("%+v, %v: counted (-want +got):\n%s", c.answer, c.err, diff)
		}
	}
}
