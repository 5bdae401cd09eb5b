package redisnodes

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	// These have no series until something is known.
	redisUp = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "activityd_redis_up", Help: "1 if the node of Redis answered the last probe of this process, one a second; 0 if not, or if it is a replica, hides INFO or refuses the password.",
	}, []string{"node"})
	redisWritable = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "activityd_redis_writable",
		Help: "1 if the last probe could write to the node of Redis; 0 if not.",
	}, []string{"node"})
	redisKnown = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "activityd_redis_known",
		Help: "1 if the sets of the node of Redis are believed; 0 while it is not known whether they are old, and reads walk.",
	}, []string{"node"})
	slotsAway = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_redis_slots_away_ratio", Help: "Share of the slots, and so of the sets, whose node of Redis cannot be used, 0 to 1.",
	})
)

// show sets the metrics of the nodes, and deletes those of nodes that are none of the
// masters any more. The caller holds probing.
func (ns *Nodes) show(s Status) {
	shown := make(map[string]bool)
	for _, n := range s.Nodes {
		shown[n.Node] = true
		delete(ns.shown, n.Node)
		redisUp.WithLabelValues(n.Node).Set(gauge[n.State != Away])
		redisWritable.WithLabelValues(n.Node).Set(gauge[n.State.TakesWrites()])
		redisKnown.WithLabelValues(n.Node).Set(gauge[n.State != Unknown])
	}
	for node := range ns.shown {
		for _, gauges := range []*prometheus.GaugeVec{redisUp, redisWritable, redisKnown} {
			gauges.DeleteLabelValues(node)
		}
	}
	ns.shown = shown
	slotsAway.Set(s.Away)
}

var gauge = map[bool]float64{false: 0, true: 1}
