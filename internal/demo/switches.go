package demo

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/activityd/activityd/internal/member"
)

// Switch is a server that visitors may turn off and on again.
type Switch struct {
	Name string                      // such as "Redis"
	Off  func() error                // ends it at once
	On   func(context.Context) error // starts it again, and returns when it answers
}

// switched is a [Switch] and how it stands.
type switched struct {
	Switch

	mu    sync.Mutex // guards state, and is held while the server is ended
	state power
}

// power is the state of a server.
type power int

const (
	isOn power = iota
	isOff
	isStarting
)

// now returns the state.
func (s *switched) now() power {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// end ends the server, and reports whether it had not ended before.
func (s *switched) end() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case isOn:
	case isOff:
		return false, nil
	case isStarting:
		return false, refuse(http.StatusConflict, "%s is starting.", s.Name)
	}
	if err := s.Off(); err != nil {
		return false, fmt.Errorf("end %s: %w", s.Name, err)
	}
	s.state = isOff
	return true, nil
}

// from reports whether the state was from, and is to now.
func (s *switched) from(from, to power) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != from {
		return false
	}
	s.state = to
	return true
}

// switchView is a button of [Demo.doSwitch].
type switchView struct {
	Name, Do, Text string
}

func (d *Demo) switchViews() []switchView {
	var views []switchView
	for _, s := range d.switches {
		view := switchView{s.Name, "off", "Turn " + s.Name + " off"}
		switch s.now() {
		case isOn:
		case isOff:
			view.Do, view.Text = "on", "Turn "+s.Name+" on again"
		case isStarting:
			view.Do, view.Text = "on", s.Name+" is starting …"
		}
		views = append(views, view)
	}
	return views
}

// anyOff reports whether a visitor has turned a server off, which is no failure to log.
func (d *Demo) anyOff() bool {
	for _, s := range d.switches {
		if s.now() != isOn {
			return true
		}
	}
	return false
}

// doSwitch turns a server off or on, as the form says.
func (d *Demo) doSwitch(r *http.Request, _ member.ID) (string, error) {
	name, do := r.PostForm.Get("server"), r.PostForm.Get("do")
	for _, s := range d.switches {
		if s.Name != name {
			continue
		}
		switch do {
		case "off":
			ended, err := s.end()
			if err != nil {
				return "", err
			}
			if ended {
				d.memory.addEvent(event{kind: "switch", you: true, text: name + " was ended by force"})
			}
			return name + " is off.", nil
		case "on":
			if s.from(isOff, isStarting) {
				ctx := context.WithoutCancel(r.Context()) // the visitor may go, the server is to come
				d.starting.Go(func() { d.turnOn(ctx, s) })
			}
			return name + " is starting.", nil
		}
		return "", refuse(http.StatusBadRequest, "do: want off or on")
	}
	return "", refuse(http.StatusNotFound, "There is no server %q to turn off.", name)
}

func (d *Demo) turnOn(ctx context.Context, s *switched) {
	if err := s.On(ctx); err != nil {
		d.cfg.Log.ErrorContext(ctx, "demo: server did not start", slog.String("server", s.Name), slog.Any("error", err))
		d.memory.addEvent(event{kind: "switch", text: s.Name + " did not start; the log says why"})
		s.from(isStarting, isOff)
		return
	}
	d.memory.addEvent(event{kind: "switch", you: true, text: s.Name + " was started again"})
	s.from(isStarting, isOn)
}
