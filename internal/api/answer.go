package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// The types below fix the order of the fields and the form of the values: ids
// are strings, because JavaScript rounds numbers above 2^53; times are unix
// seconds.

type answerJSON struct {
	ViewerID member.ID     `json:"viewer_id"`
	Contact  *contactJSON  `json:"contact"`
	Photos   []photoJSON   `json:"photos"`
	Source   recent.Source `json:"source"`
	Explain  *explainJSON  `json:"explain,omitempty"`
}

type contactJSON struct {
	ID         member.ID `json:"id"`
	Username   string    `json:"username"`
	LastUpload uint64    `json:"last_upload"`
}

type photoJSON struct {
	ID         uint64 `json:"id,string"`
	Title      string `json:"title"`
	DateUpload uint64 `json:"date_upload"`
}

type explainJSON struct {
	Candidates []candidateJSON `json:"candidates"`
	WalkReason *string         `json:"walk_reason"` // null: no walk was needed
	Steps      []stepJSON      `json:"steps"`
}

type candidateJSON struct {
	ContactID member.ID      `json:"contact_id"`
	Score     uint64         `json:"score"`
	Newest    *uint64        `json:"newest_visible"` // null: none, or not looked at
	Verdict   recent.Verdict `json:"verdict"`
}

type stepJSON struct {
	Name string  `json:"name"`
	Took float64 `json:"ms"`
}

func newAnswer(q readQuery, a recent.Answer) answerJSON {
	out := answerJSON{ViewerID: q.viewer.ID, Photos: each(a.Photos, newPhoto), Source: a.Source}
	if p := a.Contact; p != nil {
		out.Contact = &contactJSON{ID: p.ID, Username: p.Username, LastUpload: p.LastUpload}
	}
	if q.explain {
		out.Explain = newExplain(a.Trace)
	}
	return out
}

func newPhoto(p contacts.Photo) photoJSON {
	return photoJSON{ID: p.ID, Title: p.Title, DateUpload: p.DateUpload}
}

func newExplain(t recent.Trace) *explainJSON {
	return &explainJSON{
		Candidates: each(t.Candidates, newCandidate),
		WalkReason: orNull(t.WalkReason),
		Steps:      each(t.Steps, newStep),
	}
}

func newCandidate(e recent.Examined) candidateJSON {
	return candidateJSON{ContactID: e.Contact, Score: e.Score, Newest: orNull(e.Newest), Verdict: e.Verdict}
}

func newStep(s recent.Step) stepJSON { return stepJSON{Name: s.Name, Took: milliseconds(s.Took)} }

// each never returns nil, so that an empty list is [] in JSON and not null.
func each[In, Out any](in []In, convert func(In) Out) []Out {
	out := make([]Out, 0, len(in))
	for _, v := range in {
		out = append(out, convert(v))
	}
	return out
}

func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// serverTiming is the value of a Server-Timing header, in milliseconds, which
// browsers show beside the request.
func serverTiming(steps []recent.Step, total time.Duration) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "%s;dur=%.2f, ", s.Name, milliseconds(s.Took))
	}
	fmt.Fprintf(&b, "total;dur=%.2f", milliseconds(total))
	return b.String()
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
