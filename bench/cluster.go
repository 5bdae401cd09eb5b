package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/clustertest"
)

// clusterMasters is how many masters the cluster has.
const clusterMasters = 3

// benchCluster measures a fan-out to the first audience through a Redis cluster. What it is
// compared with writes through the same client.
func (s *suite) benchCluster(ctx context.Context) (err error) {
	cluster, err := clustertest.StartCluster(ctx, clusterMasters, 0, patientScripts()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	on, client, err := s.on(ctx, cluster)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for _, known := range []bool{false, true} {
		f := newFanOut(on, 0, known)
		f.client, f.title = client, fmt.Sprintf("Fan-out of one upload through a cluster of %d masters", clusterMasters)
		if err := f.measure(ctx, false); err != nil {
			return err
		}
	}
	return nil
}

// on returns the suite with the index in the cluster, and the cluster's client.
func (s *suite) on(ctx context.Context, cluster *clustertest.Cluster) (*suite, *redis.ClusterClient, error) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true})
	ix, err := newIndex(client)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	b := *s.backend
	b.index = ix
	on := *s
	on.backend = &b
	var nodes []*redis.Client
	for _, n := range cluster.Nodes {
		nodes = append(nodes, n.Client)
	}
	if on.meter, err = newMeter(ctx, &b, nodes...); err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	client.OnNewNode(func(node *redis.Client) { node.AddHook(on.meter.trips) })
	return &on, client, nil
}
