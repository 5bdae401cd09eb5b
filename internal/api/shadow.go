package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/httpserver"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/shadow"
	"github.com/activityd/activityd/internal/strictjson"
)

// Shadow compares an answer of the site's own code with ours, as [shadow.Judge.Judge] does. It must be safe
// for concurrent use and return soon after ctx ends.
type Shadow func(ctx context.Context, a shadow.Answer) (shadow.Verdict, error)

const pathOfShadow = "/v1/shadow"

var (
	errNoShadow = noSuchResource.problem("this server compares no answers, as it runs without MySQL")
	// What hides a photo is for operators, as an explanation is.
	errShadowElsewhere = scopeProblem("without tokens, answers are compared for clients on the server's machine", auth.Inspect)
)

type shadowJSON struct {
	Result  shadow.Result `json:"result"`
	Again   string        `json:"ask_again,omitempty"`
	Class   shadow.Class  `json:"class,omitempty"`
	Cause   shadow.Cause  `json:"cause,omitempty"`
	Photo   uint64        `json:"photo_id,omitzero,string"`
	Contact member.ID     `json:"contact_id,omitzero"`
	Ours    shadow.Photos `json:"ours,omitzero"`
	Detail  string        `json:"detail,omitempty"`
}

// compareAnswer compares an answer that the site's own code gave. It changes nothing.
func (s *Server) compareAnswer(c echo.Context) error {
	if s.cfg.Auth == nil && !httpserver.IsLocal(c.Request()) {
		return errShadowElsewhere
	}
	if s.cfg.Shadow == nil {
		return errNoShadow
	}
	var f strictjson.Faults
	parseQuery(c.QueryString(), &f)
	if len(f) > 0 {
		return invalidParameter.fields(f)
	}
	a := shadow.Answer{Limit: defaultPhotos}
	err := s.readObject(c, []string{"viewer", "answer", "asked_at", "limit", "ask_again"}, func(o strictjson.Object) { readShadowed(o, &a) })
	if err != nil {
		return err
	}
	v, err := s.cfg.Shadow(c.Request().Context(), a)
	if err != nil {
		return fmt.Errorf("comparing an answer for viewer %s: %w", a.Viewer.ID, err)
	}
	out := shadowJSON{Result: v.Result}
	if v.Result == shadow.AskAgain {
		out.Again = v.Again.String()
	}
	if d := v.Difference; d != nil {
		out.Class, out.Cause, out.Photo, out.Contact, out.Ours, out.Detail = d.Class, d.Cause, d.Photo, d.Owner, d.Ours, d.Detail
	}
	return writeJSON(c, http.StatusOK, typeJSON, out)
}

func readShadowed(o strictjson.Object, a *shadow.Answer) {
	a.Viewer.ID = o.MemberID("viewer", true)
	if limit, ok := o.Whole("limit", 1, MaxPhotos); ok {
		a.Limit = int(limit)
	}
	a.Photos = shadow.Photos{}
	if list, ok := o.Need("answer", "an array with the ids of the photos that were shown, in their order"); ok {
		items, _ := o.Reader.Array("answer", list, "photos", 0, a.Limit)
		for i, item := range items {
			a.Photos = append(a.Photos, photoID(o.Reader, strictjson.Item("answer", i), item))
		}
	}
	if _, ok := o.Need("asked_at", "when your code was asked, in unix seconds"); ok {
		if at, ok := o.Whole("asked_at", 1, 1<<40); ok {
			a.Asked = time.Unix(at, 0)
			if err := shadow.CheckAsked(a.Asked, time.Now()); err != nil {
				o.Addf("asked_at", "%v", err)
			}
		}
	}
	if text, ok := o.String("ask_again", "a string"); ok {
		var err error
		if a.Again, err = shadow.ParseAgain(text); err != nil {
			o.Addf("ask_again", "%v", err)
		}
	}
}

// photoID reads the id of a photo, a string or a number.
func photoID(r *strictjson.Reader, place string, value json.RawMessage) uint64 {
	text := strings.Trim(string(value), `"`)
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 || text != strconv.FormatUint(id, 10) {
		r.Addf(r.At(place, ""), "%s: want the id of a photo, a decimal number from 1 on", strictjson.Clip(string(value)))
	}
	return id
}
