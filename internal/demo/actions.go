package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// refusal is an error for the visitor that pressed a button, with its HTTP status.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// press is one press of a button: on whose page, with which form.
type press struct {
	viewer member.ID
	form   url.Values
}

// action turns what a button does into a handler. do returns what happened, in
// words. The script on the page is answered with these words; a plain form, when
// there is no script, is sent back to the page.
func (d *Demo) action(do func(context.Context, press) (string, error)) http.HandlerFunc {
	const mostBytes = 4 << 10
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, mostBytes)
		text, viewer, err := perform(r, do)
		if err != nil {
			d.refuse(w, r, err)
			return
		}
		if r.Header.Get("X-Requested-With") == "fetch" {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(text)) //nolint:gosec // plain text, and nosniff is set; the visitor may be gone
			return
		}
		http.Redirect(w, r, "/?viewer="+viewer.String(), http.StatusSeeOther) //nolint:gosec // a number, on this very page
	}
}

func perform(r *http.Request, do func(context.Context, press) (string, error)) (string, member.ID, error) {
	if err := r.ParseForm(); err != nil {
		return "", 0, refuse(http.StatusBadRequest, "The form could not be read: %v.", err)
	}
	viewer, err := member.Parse(r.PostForm.Get("viewer"))
	if err != nil {
		return "", 0, refuse(http.StatusBadRequest, "viewer: %v", err)
	}
	text, err := do(r.Context(), press{viewer: viewer, form: r.PostForm})
	return text, viewer, err
}

func (d *Demo) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if no, ok := errors.AsType[*refusal](err); ok {
		http.Error(w, no.text, no.status)
		return
	}
	d.cfg.Log.ErrorContext(r.Context(), "demo: a button failed", slog.String("path", r.URL.Path), slog.Any("error", err))
	http.Error(w, "That did not work; the log says why.", http.StatusInternalServerError)
}

// doUpload uploads a public photo as the contact named in the form, or, when it
// is "other", as another one of the viewer's contacts.
func (d *Demo) doUpload(ctx context.Context, p press) (string, error) {
	owner, err := d.uploader(p)
	if err != nil {
		return "", err
	}
	if err := d.upload(ctx, owner, contacts.Public, true); err != nil {
		return "", err
	}
	return fmt.Sprintf("Uploaded a photo as %s. The task that tells the followers' sets is on its way.", d.memory.name(owner)), nil
}

func (d *Demo) uploader(p press) (member.ID, error) {
	if p.form.Get("owner") == "other" {
		except, _ := member.Parse(p.form.Get("shown")) // 0 where no contact is shown
		dice := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		if owner := d.memory.contactOf(dice, p.viewer, except); owner != 0 {
			return owner, nil
		}
		return 0, refuse(http.StatusConflict, "%s has no other contact who could upload.", d.memory.name(p.viewer))
	}
	owner, err := member.Parse(p.form.Get("owner"))
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "owner: %v", err)
	}
	if !d.memory.hasContact(p.viewer, owner) {
		return 0, refuse(http.StatusConflict, "%s is no contact of %s.", d.memory.name(owner), d.memory.name(p.viewer))
	}
	return owner, nil
}

// doPrivate makes a photo private that the viewer is shown now.
func (d *Demo) doPrivate(ctx context.Context, p press) (string, error) {
	id, err := strconv.ParseUint(p.form.Get("photo"), 10, 64)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "photo: want the id of a photo that is shown")
	}
	answer, err := d.cfg.Reader.Read(ctx, contacts.Viewer{ID: p.viewer}, photosShown)
	if errors.Is(err, contacts.ErrNoMember) {
		return "", refuse(http.StatusNotFound, "There is no member %s.", p.viewer)
	}
	if err != nil {
		return "", err
	}
	for _, photo := range answer.Photos {
		if photo.ID == id {
			one := upload{id: id, owner: answer.Contact.ID, title: photo.Title}
			return fmt.Sprintf("“%s” is private now, and gone from the very next answer. No task had to run.", photo.Title),
				d.setVisibility(ctx, one, contacts.Private, true)
		}
	}
	return "", refuse(http.StatusConflict, "That photo is not shown any more.")
}

func (d *Demo) doWipe(ctx context.Context, _ press) (string, error) {
	return "Redis is empty. Answers come from the database until a task has refilled the set.", d.wipe(ctx)
}

// doTraffic pauses or resumes, as the form says: two visitors who press at once
// want the same.
func (d *Demo) doTraffic(_ context.Context, p press) (string, error) {
	switch p.form.Get("do") {
	case "pause":
		d.paused.Store(true)
		return "Traffic is paused.", nil
	case "resume":
		d.paused.Store(false)
		return "Traffic goes on.", nil
	default:
		return "", refuse(http.StatusBadRequest, "do: want pause or resume")
	}
}
