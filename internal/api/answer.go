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

// Answer is a viewer's answer as JSON; [Explained] makes one for the command line.
type Answer struct {
	ViewerID member.ID        `json:"viewer_id"`
	Contact  *contactJSON     `json:"contact"`
	Photos   []photoJSON      `json:"photos"`
	Source   recent.Source    `json:"source,omitempty"`  // for operators
	Explain  *explanationJSON `json:"explain,omitempty"` // for operators that ask for it
}

type contactJSON struct {
	ID         member.ID `json:"id"`
	Username   string    `json:"username"`
	LastUpload uint64    `json:"last_upload"` // of what the viewer may see
}

type photoJSON struct {
	ID         uint64 `json:"id,string"`
	Title      string `json:"title"`
	DateUpload uint64 `json:"date_upload"`
}

func newAnswer(v contacts.Viewer, a recent.Answer) Answer {
	out := Answer{ViewerID: v.ID, Photos: each(a.Photos, func(p contacts.Photo) photoJSON {
		return photoJSON{ID: p.ID, Title: p.Title, DateUpload: p.DateUpload}
	})}
	if p := a.Contact; p != nil {
		out.Contact = &contactJSON{ID: p.ID, Username: p.Username}
		if len(a.Photos) > 0 {
			out.Contact.LastUpload = a.Photos[0].DateUpload
		}
	}
	return out
}

// each never returns nil, so that an empty list is [] in JSON and not null.
func each[In, Out any](in []In, convert func(In) Out) []Out {
	out := make([]Out, 0, len(in))
	for _, v := range in {
		out = append(out, convert(v))
	}
	return out
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
