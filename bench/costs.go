package main

import "reflect"

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
		counts{max(0, n.Statements), max(0, n.RowsRead), max(0, n.MySQLBytes), max(0, n.Redo), max(0, n.Pages), max(0, n.Commands), max(0, n.RedisBytes), max(0, n.RedisTrips)},
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

	Told cost `json:"told"` // an update of a follower's set for an upload, on one Redis
	// What activityd and Redis take for it in a cluster, over what they take on one server.
	ClusterTold float64 `json:"cluster_told"`
	// A call of the script that updates sets, in addition: told has that of calls with as many as
	// one has at most.
	ToldCall cost `json:"told_call"`

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
func medianCosts(rounds []costs) (c costs) {
	values := make([]reflect.Value, len(rounds))
	for i := range rounds {
		values[i] = reflect.ValueOf(rounds[i])
	}
	setMedians(reflect.ValueOf(&c).Elem(), values)
	return c
}

// setMedians sets each number in a value to the median of those in others of its form.
func setMedians(to reflect.Value, from []reflect.Value) {
	of := func(part func(reflect.Value) reflect.Value) []reflect.Value {
		parts := make([]reflect.Value, len(from))
		for i, v := range from {
			parts[i] = part(v)
		}
		return parts
	}
	switch to.Kind() {
	case reflect.Struct:
		for i := range to.NumField() {
			setMedians(to.Field(i), of(func(v reflect.Value) reflect.Value { return v.Field(i) }))
		}
	case reflect.Slice:
		to.Set(reflect.MakeSlice(to.Type(), from[0].Len(), from[0].Len()))
		for i := range to.Len() {
			setMedians(to.Index(i), of(func(v reflect.Value) reflect.Value { return v.Index(i) }))
		}
	default:
		list := make([]float64, len(from))
		for i, v := range from {
			list[i] = v.Float()
		}
		to.SetFloat(quantile(list, 0.5))
	}
}
