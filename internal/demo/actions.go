package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// refusal is an error of the visitor's request, with its HTTP status.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// action is the handler of a button on the page of a viewer. do returns a sentence for the
// page's script to show. A form sent without the script is redirected to the page.
func (d *Demo) action(do func(r *http.Request, viewer member.ID) (string, error)) http.HandlerFunc {
	const maxBytes = 4 << 10
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBytes)
		if err := r.ParseForm(); err != nil {
			http.Error(w, fmt.Sprintf("The form could not be read: %v.", err), http.StatusBadRequest)
			return
		}
		viewer, err := member.Parse(r.PostForm.Get("viewer"))
		if err != nil {
			http.Error(w, "viewer: "+err.Error(), http.StatusBadRequest)
			return
		}
		text, err := do(r, viewer)
		if no, ok := errors.AsType[*refusal](err); ok {
			http.Error(w, no.text, no.status)
			return
		}
		switch {
		case err == nil:
		case r.Context().Err() != nil: // the visitor has gone
			return
		case errors.Is(err, contacts.ErrNoMember):
			http.Error(w, "There is no such member.", http.StatusNotFound)
			return
		case errors.Is(err, mysql.ErrUnavailable), d.off.Load():
			http.Error(w, "MySQL is away: that did not work.", http.StatusServiceUnavailable)
			return
		default:
			d.cfg.Log.ErrorContext(r.Context(), "action failed", "path", r.URL.Path, "error", err)
			http.Error(w, "That did not work; the log says why.", http.StatusInternalServerError)
			return
		}
		if r.Header.Get("X-Requested-With") == "fetch" {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(text)) // the visitor may be gone
			return
		}
		http.Redirect(w, r, "/?viewer="+viewer.String(), http.StatusSeeOther) //nolint:gosec // a number, on this very page
	}
}

// doUpload uploads a public photo by a contact of the viewer, but not the contact in the form.
func (d *Demo) doUpload(r *http.Request, viewer member.ID) (string, error) {
	shown, _ := member.Parse(r.PostForm.Get("shown")) // 0 where no contact is shown
	owner := d.town.contactOf(rand.New(rand.NewPCG(rand.Uint64(), 0)), viewer, shown)
	if owner == 0 {
		return "", refuse(http.StatusConflict, "%s has no other contact that could upload.", d.town.name(viewer))
	}
	if d.cfg.Phones != nil { // the phone is to be known before the event
		if err := d.cfg.Phones.register(r.Context(), viewer); err != nil {
			return "", err
		}
	}
	if _, err := d.upload(r.Context(), owner, contacts.Public, true); err != nil {
		return "", err
	}
	return fmt.Sprintf("Uploaded a photo as %s. A task will update the followers’ sets.", d.town.name(owner)), nil
}

// doPrivate makes a photo private that the viewer is shown now.
func (d *Demo) doPrivate(r *http.Request, viewer member.ID) (string, error) {
	id, err := strconv.ParseUint(r.PostForm.Get("photo"), 10, 64)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "photo: want the id of a photo that is shown")
	}
	answer, err := d.cfg.Reader.Read(r.Context(), contacts.Viewer{ID: viewer}, photosShown)
	if err != nil {
		return "", err
	}
	for _, photo := range answer.Photos {
		if photo.ID == id {
			u := upload{id: id, owner: answer.Contact.ID, title: photo.Title}
			return fmt.Sprintf("“%s” is private now, and gone from the very next answer. No task had to run.", u.title),
				d.setVisibility(r.Context(), u, contacts.Private, true)
		}
	}
	return "", refuse(http.StatusConflict, "That photo is not shown any more.")
}

func (d *Demo) doWipe(r *http.Request, _ member.ID) (string, error) {
	if err := d.cfg.Wipe(r.Context()); err != nil {
		return "", fmt.Errorf("wipe Redis: %w", err)
	}
	d.town.addEvent(event{kind: "server", you: true, text: "wiped Redis: every set is gone"})
	return "Redis is empty. Answers come from the database until a task has refilled the set.", nil
}

// doSwitch turns MySQL off or on, as the form says. It does not toggle: two visitors may press the
// same button at once.
func (d *Demo) doSwitch(r *http.Request, _ member.ID) (string, error) {
	do := r.PostForm.Get("do")
	switch {
	case d.cfg.MySQL == nil:
		return "", refuse(http.StatusConflict, "There is no MySQL here to turn off.")
	case do != "off" && do != "on":
		return "", refuse(http.StatusBadRequest, "do: want off or on")
	}
	d.switching.Lock()
	defer d.switching.Unlock()
	if d.off.Load() == (do == "off") {
		return "MySQL is " + do + ".", nil
	}
	if do == "off" {
		d.off.Store(true) // before its errors come
		if err := d.cfg.MySQL.Off(); err != nil {
			return "", fmt.Errorf("end MySQL: %w", err)
		}
		d.town.addEvent(event{kind: "server", you: true, text: "ended MySQL by force"})
		return "MySQL is off. Nobody is shown a photo that it cannot vouch for.", nil
	}
	if err := d.cfg.MySQL.On(context.WithoutCancel(r.Context())); err != nil { // the visitor may go, the server is to come
		d.cfg.Log.ErrorContext(r.Context(), "MySQL not started", "error", err)
		return "", refuse(http.StatusInternalServerError, "MySQL did not start; the log says why.")
	}
	d.off.Store(false)
	d.town.addEvent(event{kind: "server", you: true, text: "started MySQL again"})
	return "MySQL is on again. No change and no task was lost.", nil
}
