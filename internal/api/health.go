package api

import (
	"math"
	"net/http"
	"slices"
)

// The statuses of /readyz.
const (
	statusOK          = "ok"
	statusDegraded    = "degraded"
	statusUnavailable = "unavailable"
	statusStopping    = "stopping"
)

type readinessJSON struct {
	Status     string         `json:"status"`
	Components componentsJSON `json:"components"`
	// Behind is by queue, in seconds. When a queue is behind depends on when members upload,
	// hidden photos included, so it is for operators.
	Behind map[string]float64 `json:"behind_seconds,omitempty"`
}

type componentsJSON struct {
	MySQL componentJSON `json:"mysql"`
	Redis componentJSON `json:"redis"`
}

type componentJSON struct {
	Status    string     `json:"status"`
	Detail    string     `json:"detail,omitempty"`
	NodesAway float64    `json:"nodes_away,omitempty"`
	Nodes     []nodeJSON `json:"nodes,omitempty"`
}

type nodeJSON struct {
	Address string `json:"address"`
	Detail  string `json:"detail"`
}

// healthz reports that the process lives; no restart helps against a database that is away.
func (s *Server) healthz(*call) (any, error) { return map[string]string{"status": statusOK}, nil }

// readyz answers 200 as long as reads can be answered, even without the index, or tasks can be
// accepted. Unlike further errors, 503 has the same form of body.
func (s *Server) readyz(c *call) (any, error) {
	health := s.cfg.Health()
	if health.Redis.Nodes != nil && !s.isOperatorOfOpen(c) {
		health.Redis.Nodes = nil
	}
	code, body := http.StatusOK, readinessJSON{Status: statusOK, Components: componentsJSON{MySQL: newComponent(health.MySQL), Redis: newComponent(health.Redis)}}
	all := []componentJSON{body.Components.MySQL, body.Components.Redis}
	switch {
	case !health.MySQL.Usable:
		code, body.Status = http.StatusServiceUnavailable, statusUnavailable
	case slices.ContainsFunc(all, func(c componentJSON) bool { return c.Status != statusOK }):
		body.Status = statusDegraded
	}
	if s.stopping.Load() {
		code, body.Status = http.StatusServiceUnavailable, statusStopping
	}
	if behind := s.cfg.Behind(); behind != nil && s.isOperatorOfOpen(c) {
		body.Behind = make(map[string]float64, len(behind.ByQueue))
		for name, d := range behind.ByQueue {
			body.Behind[name] = milliseconds(d) / 1000
		}
	}
	c.status = code
	return body, nil
}

func newComponent(c Component) componentJSON {
	j := componentJSON{Status: statusOK, Detail: c.Detail}
	switch {
	case !c.Usable:
		j.Status = statusUnavailable
		return j
	case c.Detail != "":
		j.Status = statusDegraded
	}
	j.NodesAway = math.Round(c.Away*1e4) / 1e4
	for _, n := range c.Nodes {
		j.Nodes = append(j.Nodes, nodeJSON(n))
	}
	return j
}
