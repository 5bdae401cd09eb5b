package inspect_test

import (
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/recent"
)

// A reason is given where it says more than the verdict, the dates and the proof.
func TestExplainGivesReasonsThatAreNews(t *testing.T) {
	t.Parallel()
	shown := contacts.Album{Photos: []contacts.Photo{{ID: 5, DateUpload: 500}}}
	site, late := contacts.Detail{IsMember: true}, contacts.Detail{Standing: contacts.Standing{IsContact: true}, IsMember: true}
	for want, c := range map[string]recent.Candidate{
		"":                    {Examined: recent.Examined{Verdict: recent.Chosen, Newest: 500, NewestID: 5}, InSet: true},
		"not in the set":      {Examined: recent.Examined{Verdict: recent.Chosen, Newest: 500, NewestID: 5}},
		"lower id":            {Examined: recent.Examined{Verdict: recent.Older, Newest: 500, NewestID: 4}, InSet: true},
		"changed during":      {Examined: recent.Examined{Verdict: recent.Older, Newest: 501, NewestID: 4}, InSet: true},
		"no member any more":  {Examined: recent.Examined{Verdict: recent.NotContact}, InSet: true},
		"no contact any more": {Examined: recent.Examined{Verdict: recent.NotContact}, InSet: true, Now: site},
		"became a contact":    {Examined: recent.Examined{Verdict: recent.NotContact}, InSet: true, Now: late},
	} {
		if got := inspect.Because(c, shown); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%+v: because %q, want %q", c, got, want)
		}
	}
	for verdict, want := range map[recent.Verdict]string{
		recent.NotContact: "a broadcast member, at which each read looks",
		recent.Chosen:     "a broadcast member, which was found beside the set",
		recent.Older:      "a broadcast member, which was found beside the set",
	} {
		c := recent.Candidate{Examined: recent.Examined{Verdict: verdict, Newest: 500, NewestID: 5, Broadcast: true}}
		if got := inspect.Because(c, shown); !strings.HasSuffix(got, want) {
			t.Errorf("%+v: because %q, want %q", c, got, want)
		}
	}
	for _, plain := range []recent.Examined{
		{Verdict: recent.Older, Newest: 499, NewestID: 9}, {Verdict: recent.Blocked}, {Verdict: recent.NotLooked}, {Verdict: recent.Nothing},
	} {
		if got := inspect.Because(recent.Candidate{Examined: plain, InSet: true}, shown); got != "" {
			t.Errorf("%+v: because %q", plain, got)
		}
	}
	changed := recent.Candidate{Examined: recent.Examined{Verdict: recent.Older, Newest: 500, NewestID: 6}, InSet: true}
	if got := inspect.Because(changed, shown) + inspect.Because(changed, contacts.Album{}); strings.Count(got, "changed during") != 2 {
		t.Errorf("newer than the answer: because %q", got)
	}
}

// The proof is a sentence of the facts.
func TestExplainSaysTheProof(t *testing.T) {
	t.Parallel()
	set := []recent.Examined{{Contact: 2, Score: 86_400}, {Contact: 3, Score: 3600}, {Contact: 4, Score: 60}}
	shown := []contacts.Photo{{ID: 1, DateUpload: 86_400}}
	const aCopy = 1 << 52
	for _, c := range []struct {
		trace  recent.Trace
		photos []contacts.Photo
		want   string
	}{
		{recent.Trace{Proof: recent.ByNext}, shown, "first candidate (1970-01-02 00:00:00) is newer than the score of the next (1970-01-01 01:00:00)"},
		{recent.Trace{Proof: recent.ByLowest}, shown, "all candidates (1970-01-02 00:00:00) is newer than the lowest score of the set (1970-01-01 00:01:00)"},
		{recent.Trace{Proof: recent.ByAll}, shown, "holds all contacts that ever uploaded (3), and no other"},
		{recent.Trace{Proof: recent.ByAll}, nil, "none has a visible photo"},
		{
			recent.Trace{Proof: recent.ByWalk, Walk: contacts.WalkTrace{LookedAt: 32, Bound: 60}},
			shown,
			"the walk found (1970-01-02 00:00:00) is newer than the last upload (1970-01-01 00:01:00 at most)",
		},
		{
			recent.Trace{Proof: recent.ByNext, Broadcast: recent.CopyRead{Copy: aCopy, Read: 5}},
			shown,
			"the score of the next (1970-01-01 01:00:00), and no contact after that uploaded later, broadcast members aside: all of these that ever uploaded were read (5)",
		},
		{
			recent.Trace{Proof: recent.ByNext, Beyond: 7200, Broadcast: recent.CopyRead{Copy: aCopy, Read: 32, Bound: 7200}},
			shown,
			"the last upload of each broadcast member that was not read (1970-01-01 02:00:00), and no contact after that uploaded later, " +
				"broadcast members aside: the last of these to upload were read (32), and no other uploaded after 1970-01-01 02:00:00",
		},
		{
			recent.Trace{Proof: recent.ByLowest, Beyond: 120, Broadcast: recent.CopyRead{Copy: aCopy, Read: 32, Bound: 120}},
			shown,
			"all candidates (1970-01-02 00:00:00) is newer than the last upload of each broadcast member that was not read (1970-01-01 00:02:00)",
		},
		{
			recent.Trace{Proof: recent.ByLowest, Beyond: 60, Broadcast: recent.CopyRead{Copy: aCopy, Read: 32, Bound: 30}},
			shown,
			"the lowest score of the set (1970-01-01 00:01:00), and no contact outside of the set uploaded later, broadcast members aside: " +
				"the last of these to upload were read (32), and no other uploaded after 1970-01-01 00:00:30",
		},
		{recent.Trace{Proof: recent.ByWalk, Walk: contacts.WalkTrace{LookedAt: 7}}, shown, "looked at all contacts that ever uploaded (7)"},
	} {
		c.trace.Candidates = set
		e := recent.Explanation{Answer: recent.Answer{Album: contacts.Album{Photos: c.photos}, Trace: c.trace}}
		if got := inspect.Proof(e); !strings.Contains(got, c.want) {
			t.Errorf("%q does not say %q", got, c.want)
		}
	}
}
