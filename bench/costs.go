package main

import (
	"encoding/json"
	"fmt"
)

// cost is what an operation takes of each server, or what a number of them take a second.
type cost struct {
	Activityd float64 `json:"activityd_cpu_us"`
	MySQL     float64 `json:"mysql_cpu_us"`
	Redis     float64 `json:"redis_cpu_us"`
	HTTPBytes float64 `json:"http_bytes,omitzero"`
	Counts    counts  `json:"counts"`
}

// plus adds d times f.
func (c cost) plus(d cost, f float64) cost {
	return cost{
		c.Activityd + f*d.Activityd, c.MySQL + f*d.MySQL, c.Redis + f*d.Redis,
		c.HTTPBytes + f*d.HTTPBytes, c.Counts.plus(d.Counts, f),
	}
}

func (c cost) times(f float64) cost { return cost{}.plus(c, f) }

// atLeastZero is for a cost that is the difference of two measurements.
func (c cost) atLeastZero() cost {
	n := c.Counts
	return cost{
		max(0, c.Activityd), max(0, c.MySQL), max(0, c.Redis), max(0, c.HTTPBytes),
		counts{max(0, n.Statements), max(0, n.RowsRead), max(0, n.MySQLBytes), max(0, n.Commands), max(0, n.RedisBytes), max(0, n.RedisTrips)},
	}
}

// costs are those of single operations.
type costs struct {
	Read    cost `json:"read"`    // over HTTP
	Process cost `json:"process"` // a process at rest, a second
	Swept   cost `json:"swept"`   // a set that the audit's sweep compares

	SiteChange cost `json:"site_change"` // the site's own transaction for a change of contacts
	SiteUpload cost `json:"site_upload"` // and for an upload
	Enqueue    cost `json:"enqueue"`     // the row of a task in it, and the notification

	// From the claim of a task to its end: of one that is claimed alone, and of one in a
	// full claim.
	ChangeAlone   cost `json:"change_alone"`
	ChangeBatched cost `json:"change_batched"`
	UploadAlone   cost `json:"upload_alone"`
	UploadBatched cost `json:"upload_batched"`

	Told cost `json:"told"` // a follower's set that is told of an upload, on one Redis
	// What activityd and Redis take for it in a cluster, over what they take on one server.
	ClusterTold float64 `json:"cluster_told"`

	Refill        cost `json:"refill"`         // a set that is read from MySQL
	RefillContact cost `json:"refill_contact"` // for each contact, in addition

	Contacts float64 `json:"contacts"` // that a member had in the mean where these were measured

	// What MySQL takes for a refill on the largest site that was measured, over what it takes
	// on this one.
	LargeRefill float64 `json:"-"`

	SetBytes []float64 `json:"set_bytes"` // of a set by its size
	KeyBytes float64   `json:"key_bytes"` // that the table of keys takes for each set, in addition

	Target  cost `json:"target"`  // a recipient of an event
	Deliver cost `json:"deliver"` // a message to a device

	ForkMillis float64 `json:"fork_ms_per_gigabyte"`
}

// medianCosts returns the median of each number.
func medianCosts(rounds []costs) (c costs, err error) {
	all := make([]any, len(rounds))
	for i := range rounds {
		text, err := json.Marshal(rounds[i])
		if err != nil {
			return c, err
		}
		if err := json.Unmarshal(text, &all[i]); err != nil {
			return c, err
		}
	}
	text, err := json.Marshal(medianTree(all))
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(text, &c)
}

// medianTree is the median of each number in values of one form.
func medianTree(all []any) any {
	of := func(part func(any) any) any {
		parts := make([]any, len(all))
		for i, v := range all {
			parts[i] = part(v)
		}
		return medianTree(parts)
	}
	switch first := all[0].(type) {
	case map[string]any:
		result := make(map[string]any)
		for name := range first {
			result[name] = of(func(v any) any { return v.(map[string]any)[name] })
		}
		return result
	case []any:
		result := make([]any, len(first))
		for i := range first {
			result[i] = of(func(v any) any { return v.([]any)[i] })
		}
		return result
	case float64:
		var list []float64
		for _, v := range all {
			list = append(list, v.(float64))
		}
		return quantile(list, 0.5)
	default:
		panic(fmt.Sprintf("a cost is a %T", first))
	}
}
