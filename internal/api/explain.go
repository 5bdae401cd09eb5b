package api

import (
	"context"
	"fmt"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// An explanation comes in two forms of their own types, so that nothing can slip
// from what is for operators into what is for viewers.

type viewerExplanationJSON struct {
	View       string       `json:"view"` // "viewer"
	Candidates []rankedJSON `json:"candidates"`
	Proof      string       `json:"proof"`
}

type rankedJSON struct {
	ContactID member.ID      `json:"contact_id"`
	Newest    *datedJSON     `json:"newest_visible"`
	Verdict   recent.Verdict `json:"verdict"`
}

// datedJSON is a photo of which only the date matters.
type datedJSON struct {
	ID         uint64 `json:"id,string"`
	DateUpload uint64 `json:"date_upload"`
}

type operatorExplanationJSON struct {
	View       string          `json:"view"` // "operator"
	Candidates []candidateJSON `json:"candidates"`
	Proof      string          `json:"proof"`
	Walk       *walkJSON       `json:"walk"` // null: none was needed
	Steps      []stepJSON      `json:"steps"`
}

type candidateJSON struct {
	ContactID member.ID      `json:"contact_id"`
	InSet     bool           `json:"in_set"`
	Score     *uint64        `json:"score"`          // null: it is not in the set
	Newest    *datedJSON     `json:"newest_visible"` // null: none, or not looked at
	Verdict   recent.Verdict `json:"verdict"`
	Why       string         `json:"why"`
	Now       *detailJSON    `json:"now"` // a moment after the answer; null: nobody looked
}

type detailJSON struct {
	IsMember      bool        `json:"is_member"`
	Username      string      `json:"username"`
	IsContact     bool        `json:"is_contact"`
	LastUpload    uint64      `json:"last_upload"`
	BlocksViewer  bool        `json:"blocks_viewer"`
	GrantsFriend  bool        `json:"grants_friend"`
	GrantsFamily  bool        `json:"grants_family"`
	NewestVisible *datedJSON  `json:"newest_visible"`
	NewestHidden  *hiddenJSON `json:"newest_hidden"`
}

type hiddenJSON struct {
	datedJSON

	Visibility contacts.Visibility `json:"visibility"`
}

type walkJSON struct {
	Reason     string  `json:"reason"`
	LookedAt   int     `json:"looked_at"`
	Passes     int     `json:"passes"`
	Statements int     `json:"statements"`
	Bound      *uint64 `json:"bound"` // null: all were looked at
	Stopped    string  `json:"stopped"`
}

type stepJSON struct {
	Name string  `json:"name"`
	Took float64 `json:"ms"`
}

// explained explains an answer to whoever asks.
func explained(ctx context.Context, a recent.Answer, operator bool) (any, error) {
	if operator {
		e, err := a.ToOperator(ctx)
		if err != nil {
			return nil, fmt.Errorf("to an operator: %w", err)
		}
		return newOperatorExplanation(e), nil
	}
	e, err := a.ToViewer(ctx)
	if err != nil {
		return nil, fmt.Errorf("to the viewer: %w", err)
	}
	return &viewerExplanationJSON{
		View: "viewer", Candidates: each(e.Ranking, newRanked), Proof: e.Proof,
	}, nil
}

// OperatorAnswer returns v's answer, explained, as the API gives it to operators.
func OperatorAnswer(v contacts.Viewer, a recent.Answer, e recent.OperatorExplanation) Answer {
	out := newAnswer(v, a)
	out.Source = a.Source
	out.Explain = newOperatorExplanation(e)
	return out
}

func newOperatorExplanation(e recent.OperatorExplanation) *operatorExplanationJSON {
	out := &operatorExplanationJSON{
		View: "operator", Candidates: each(e.Candidates, newCandidate), Proof: e.Proof, Steps: each(e.Steps, newStep),
	}
	if w := e.Walk; w != nil {
		out.Walk = &walkJSON{
			Reason: w.Reason, LookedAt: w.LookedAt, Passes: w.Passes, Statements: w.Statements,
			Bound: orNull(w.Bound), Stopped: w.Stopped,
		}
	}
	return out
}

func newCandidate(c recent.Candidate) candidateJSON {
	out := candidateJSON{ContactID: c.Contact, InSet: c.InSet, Verdict: c.Verdict, Why: c.Why}
	if c.InSet {
		out.Score = &c.Score
	}
	if c.Newest > 0 {
		out.Newest = &datedJSON{ID: c.NewestID, DateUpload: c.Newest}
	}
	if c.Now != nil {
		out.Now = newDetail(*c.Now)
	}
	return out
}

func newDetail(d contacts.Detail) *detailJSON {
	out := &detailJSON{
		IsMember: d.IsMember, Username: d.Username, IsContact: d.IsContact, LastUpload: d.LastUpload,
		BlocksViewer: d.Blocks, GrantsFriend: d.Friend, GrantsFamily: d.Family,
	}
	if d.Newest != nil {
		out.NewestVisible = newDated(*d.Newest)
	}
	if d.Hidden != nil {
		out.NewestHidden = &hiddenJSON{*newDated(d.Hidden.Photo), d.Hidden.Visibility}
	}
	return out
}

func newRanked(r recent.Ranked) rankedJSON {
	return rankedJSON{ContactID: r.Contact, Newest: newDated(r.Newest), Verdict: r.Verdict}
}

func newDated(p contacts.Photo) *datedJSON { return &datedJSON{ID: p.ID, DateUpload: p.DateUpload} }

func newStep(s recent.Step) stepJSON { return stepJSON{Name: s.Name, Took: milliseconds(s.Took)} }
