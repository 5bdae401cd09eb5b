package api

import (
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
)

// The types below fix the order of the fields and the form of the values: ids
// are strings, because JavaScript rounds numbers above 2^53; times are unix
// seconds.

// Answer is a viewer's answer as JSON; [Explained] makes it for the command line.
type Answer struct {
	ViewerID uint64        `json:"viewer_id,string"` // no member.ID: a method for JSON takes longer
	Contact  *contactJSON  `json:"contact"`
	Photos   []photoJSON   `json:"photos"`
	Source   recent.Source `json:"source,omitempty"` // for operators
	// Behind is for operators, too: how long ago, in seconds, the oldest task became due that
	// may change a set and is not done. An answer by the index may lack the changes of these tasks.
	Behind  *float64      `json:"behind_seconds,omitempty"`
	Explain *recent.Trace `json:"explain,omitempty"` // for operators that ask for it
}

type contactJSON struct {
	ID         uint64 `json:"id,string"`
	Username   string `json:"username"`
	LastUpload uint64 `json:"last_upload"` // of the photos that the viewer may see
}

type photoJSON struct {
	ID         uint64 `json:"id,string"`
	Title      string `json:"title"`
	DateUpload uint64 `json:"date_upload"`
}

// Behind is how far behind the sets may be: how long ago the oldest task became due that may change a set and is not done.
type Behind struct {
	Longest time.Duration
	ByQueue map[string]time.Duration // 0: nothing is due
}

// NewBehind returns how far behind the sets may be by the due tasks of each queue.
func NewBehind(byQueue map[string]time.Duration) Behind {
	b := Behind{ByQueue: byQueue}
	for _, d := range byQueue {
		b.Longest = max(b.Longest, d)
	}
	return b
}

// SetBehind says in an answer by the index how far behind the sets may be. An answer by the
// database is not behind.
func (a *Answer) SetBehind(d time.Duration) {
	if a.Source == recent.FromIndex {
		seconds := milliseconds(d) / 1000
		a.Behind = &seconds
	}
}

func newAnswer(v contacts.Viewer, a recent.Answer) Answer {
	out := Answer{ViewerID: uint64(v.ID), Photos: each(a.Photos, func(p contacts.Photo) photoJSON {
		return photoJSON{ID: p.ID, Title: p.Title, DateUpload: p.DateUpload}
	})}
	if p := a.Contact; p != nil {
		out.Contact = &contactJSON{ID: uint64(p.ID), Username: p.Username}
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

// list is the answer {"name":[…]}.
func list[In, Out any](name string, in []In, convert func(In) Out) map[string][]Out {
	return map[string][]Out{name: each(in, convert)}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Explained returns v's answer with its explanation, as the API gives it to operators.
func Explained(v contacts.Viewer, a recent.Answer) Answer {
	out := newAnswer(v, a)
	out.Source, out.Explain = a.Source, &a.Trace
	return out
}
