package redisnodes

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
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
	nodesAway = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_redis_nodes_away_ratio", Help: "Share of the nodes of Redis that cannot be used, 0 to 1.",
	})
)

// show sets the metrics of the masters, and deletes the metrics of former masters.
func show(s Status) {
	for _, gauges := range []*prometheus.GaugeVec{redisUp, redisWritable, redisKnown} {
		gauges.Reset()
	}
	is := map[bool]float64{true: 1}
	for _, n := range s.Nodes {
		isOld := errors.Is(n.Err, ErrUnknown)
		redisUp.WithLabelValues(n.Node).Set(is[n.Err == nil || isOld || IsLate(n.Err) || errors.Is(n.Err, ErrStamp)])
		redisWritable.WithLabelValues(n.Node).Set(is[n.Err == nil])
		redisKnown.WithLabelValues(n.Node).Set(is[!isOld])
	}
	nodesAway.Set(s.Away)
}
