package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// action is the handler of a button on the page of a viewer. do returns what happened,
// for the page's script to show; a form sent without the script is redirected to the page,
// or leaves the browser where it is, if it says stay.
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
		case errors.Is(err, mysql.ErrUnavailable), d.anyOff():
			http.Error(w, "A server is away: that did not work.", http.StatusServiceUnavailable)
			return
		default:
			d.cfg.Log.ErrorContext(r.Context(), "demo: action failed", slog.String("path", r.URL.Path), slog.Any("error", err))
			http.Error(w, "That did not work; the log says why.", http.StatusInternalServerError)
			return
		}
		if r.PostForm.Get("stay") != "" { // the page follows by itself
			w.WriteHeader(http.StatusNoContent)
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

// doUpload uploads public photos as the contact in the form.
func (d *Demo) doUpload(r *http.Request, viewer member.ID) (string, error) {
	owner, err := d.uploader(r, viewer)
	if err != nil {
		return "", err
	}
	n, err := photosAsked(r)
	if err != nil {
		return "", err
	}
	if d.cfg.Push != nil {
		if _, err := d.pairOf(r.Context(), viewer); err != nil { // they are to be there before the event
			return "", noMember(err)
		}
	}
	for range n {
		u, err := d.upload(r.Context(), owner, contacts.Public, true)
		if err != nil {
			return "", err
		}
		d.memory.addNotified(viewer, u)
	}
	what := "a photo"
	if n > 1 {
		what = fmt.Sprintf("%d photos", n)
	}
	return fmt.Sprintf("Uploaded %s as %s. A task will update the followers' sets.", what, d.memory.name(owner)), nil
}

// photosAsked returns how many photos the form asks for: one, or a few at once.
func photosAsked(r *http.Request) (int, error) {
	const most = 9
	text := r.PostForm.Get("times")
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, refuse(http.StatusBadRequest, "times: want 1 to %d", most)
	}
	return n, nil
}

// uploader returns the contact in the form; for "other", any of the viewer's contacts
// but the one that is shown; for "celebrity", the member with the most followers.
func (d *Demo) uploader(r *http.Request, viewer member.ID) (member.ID, error) {
	if r.PostForm.Get("owner") == "celebrity" {
		return d.memory.celebrity, nil
	}
	if r.PostForm.Get("owner") == "other" {
		shown, _ := member.Parse(r.PostForm.Get("shown")) // 0 where no contact is shown
		dice := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		if owner := d.memory.contactOf(dice, viewer, shown); owner != 0 {
			return owner, nil
		}
		return 0, refuse(http.StatusConflict, "%s has no other contact that could upload.", d.memory.name(viewer))
	}
	owner, err := member.Parse(r.PostForm.Get("owner"))
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "owner: %v", err)
	}
	if !d.memory.hasContact(viewer, owner) {
		return 0, refuse(http.StatusConflict, "%s is no contact of %s.", d.memory.name(owner), d.memory.name(viewer))
	}
	return owner, nil
}

// doPrivate makes a photo private that the viewer is shown now, or was to be notified of.
func (d *Demo) doPrivate(r *http.Request, viewer member.ID) (string, error) {
	id, err := strconv.ParseUint(r.PostForm.Get("photo"), 10, 64)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "photo: want the id of a photo that is shown")
	}
	for _, n := range d.memory.notifiedOf(viewer) {
		if n.id == id {
			return d.makePrivate(r.Context(), n.upload)
		}
	}
	answer, err := d.cfg.Reader.Read(r.Context(), contacts.Viewer{ID: viewer}, photosShown)
	if errors.Is(err, contacts.ErrNoMember) {
		return "", refuse(http.StatusNotFound, "There is no member %s.", viewer)
	}
	if err != nil {
		return "", err
	}
	for _, photo := range answer.Photos {
		if photo.ID == id {
			return d.makePrivate(r.Context(), upload{id: id, owner: answer.Contact.ID, title: photo.Title})
		}
	}
	return "", refuse(http.StatusConflict, "That photo is not shown any more.")
}

func (d *Demo) makePrivate(ctx context.Context, u upload) (string, error) {
	return fmt.Sprintf("“%s” is private now, and gone from the very next answer. No task had to run.", u.title),
		d.setVisibility(ctx, u, contacts.Private, true)
}

func (d *Demo) doWipe(r *http.Request, _ member.ID) (string, error) {
	if err := d.cfg.Wipe(r.Context()); err != nil {
		return "", fmt.Errorf("wipe Redis: %w", err)
	}
	d.memory.addEvent(event{kind: "wipe", you: true, text: "Redis was wiped: every set is gone"})
	return "Redis is empty. Answers come from the database until a task has refilled the set.", nil
}

// doBroadcast makes the member with the most followers a broadcast member, or has it cease to be one, as the form says.
func (d *Demo) doBroadcast(r *http.Request, _ member.ID) (string, error) {
	do, of := r.PostForm.Get("do"), d.memory.celebrity
	switch {
	case d.cfg.Broadcast == nil:
		return "", refuse(http.StatusConflict, "Broadcast members need the real servers.")
	case do != "add" && do != "remove":
		return "", refuse(http.StatusBadRequest, "do: want add or remove")
	}
	if err := d.cfg.Broadcast(r.Context(), of, do == "add"); err != nil {
		return "", fmt.Errorf("change a broadcast member: %w", err)
	}
	if do == "add" {
		return fmt.Sprintf("In two seconds an upload by %s is written to %d sets, however many followers there are, and each read looks there.",
			d.memory.name(of), len(member.Copies)), nil
	}
	return fmt.Sprintf("First all followers of %s get the last upload, by tasks.", d.memory.name(of)), nil
}

// doTraffic pauses or resumes, as the form says. It does not toggle: two visitors may
// press the same button at once.
func (d *Demo) doTraffic(r *http.Request, _ member.ID) (string, error) {
	switch r.PostForm.Get("do") {
	case "pause":
		d.paused.Store(true)
		return "Traffic is paused.", nil
	case "resume":
		d.paused.Store(false)
		return "Traffic continues.", nil
	default:
		return "", refuse(http.StatusBadRequest, "do: want pause or resume")
	}
}
