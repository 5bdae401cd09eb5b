package main

import (
	"math"
)

// The capacity model: what a site of so many members needs, computed from the measured
// costs of single operations. docs/scale.md explains it, and compares it with measurements.
// All of it is arithmetic, and begins with compute.

// rates are how often something happens, a second.
type rates struct {
	Reads      float64 `json:"reads"`
	Uploads    float64 `json:"uploads"`
	Changes    float64 `json:"contact_changes"`
	SweepSets  float64 `json:"sets_swept"`
	Recipients float64 `json:"recipients,omitzero"` // of events
	Deliveries float64 `json:"deliveries,omitzero"` // to devices
}

// workload is what the members of a site do, and what it shall run on.
type workload struct {
	crowd

	// A day, for each member.
	Reads      float64 `json:"reads_per_day"`
	Uploads    float64 `json:"uploads_per_day"`
	Changes    float64 `json:"contact_changes_per_day"`
	Events     float64 `json:"events_per_day"`       // that members may be notified of
	Recipients float64 `json:"recipients_per_event"` // of one event
	Devices    float64 `json:"devices_per_recipient"`
	Photos     float64 `json:"photos_per_member"` // that it has in all
	Peak       float64 `json:"peak"`              // the busiest minute over the mean of the day

	Headroom      float64 `json:"headroom"` // the part of a core, or of another limit, that may be used at the peak
	HostCores     float64 `json:"host_cores"`
	MySQLCores    float64 `json:"mysql_cores"`
	MySQLMemory   float64 `json:"mysql_memory_bytes"`
	MySQLDisk     float64 `json:"mysql_disk_bytes"`
	MySQLCommits  float64 `json:"mysql_commits_per_second"`
	MySQLPages    float64 `json:"mysql_page_reads_per_second"`
	MySQLConns    float64 `json:"mysql_max_connections"`
	Conns         float64 `json:"connections_per_process"`
	NetworkBits   float64 `json:"network_bits_per_second"`
	ForkMillis    float64 `json:"longest_fork_ms"`
	NodeBytes     float64 `json:"redis_node_bytes"` // that an empty node takes
	Fragmentation float64 `json:"redis_fragmentation"`
	Replicas      float64 `json:"redis_replicas"`
	ClusterNodes  float64 `json:"redis_cluster_nodes"` // that a cluster has at most, replicas included
	Materialized  float64 `json:"materialized"`        // the share of members who have sets
	SweepDays     float64 `json:"sweep_days"`
	Celebrity     float64 `json:"celebrity_followers"`
	ClaimMillis   float64 `json:"claim_interval_ms"` // in which the tasks of one claim come together
	ContactBytes  float64 `json:"contact_bytes"`
	PhotoBytes    float64 `json:"photo_bytes"`
	MemberBytes   float64 `json:"member_bytes"`
}

// flickr is a crowd of the given size with the published figures of Flickr.
func flickr(members float64) crowd {
	return crowd{
		Members: members, LeastContacts: 2.1, ContactsTail: 1.1, MostContacts: 26_000, FollowTail: 2.2, UploadTail: 3, Uploaders: 0.61,
	}
}

// quiet is a site that is as busy as Flickr's published figures say.
func quiet() workload {
	return workload{
		crowd: flickr(1e8), Reads: 0.5, Uploads: 0.04, Changes: 0.05, Events: 0.1, Recipients: 3, Devices: 1, Photos: 125, Peak: 3,
		Headroom: 0.5, HostCores: 16, MySQLCores: 64, MySQLMemory: 512e9, MySQLDisk: 16e12, MySQLCommits: 10_000, MySQLPages: 200_000,
		MySQLConns: 10_000, Conns: 32, NetworkBits: 25e9, ForkMillis: 50, NodeBytes: 50e6, Fragmentation: 1.2, Replicas: 1, ClusterNodes: 1000,
		Materialized: 1, SweepDays: 30, Celebrity: 1e7, ClaimMillis: 5, ContactBytes: 85, PhotoBytes: 150, MemberBytes: 90,
	}
}

// busy is a site whose members come every day and have four times the contacts.
func busy() workload {
	w := quiet()
	w.LeastContacts, w.ContactsTail = 15, 1.3
	w.Reads, w.Uploads, w.Changes, w.Events, w.Recipients = 20, 0.5, 0.2, 2, 10
	return w
}

const day = 86_400

// unsourced are what no publication says of a site. Between low and high may be much; the names
// are those in the JSON.
var unsourced = []struct {
	name      string
	low, high float64 // of the value, or times it
	times     bool
	of        func(*workload) *float64
}{
	// From uploads in proportion to followers to nine of ten photos by the fifth with most of them.
	{"upload_tail", 2.2, 4, false, func(w *workload) *float64 { return &w.UploadTail }},
	{"peak", 2, 5, false, func(w *workload) *float64 { return &w.Peak }},
	{"reads_per_day", 0.5, 2, true, func(w *workload) *float64 { return &w.Reads }},
	{"recipients_per_event", 0.5, 2, true, func(w *workload) *float64 { return &w.Recipients }},
}

// spread returns the workload, and it with each of the numbers that have no source at its
// lowest and at its highest, but for those that are known.
func (w workload) spread(known map[string]bool) []workload {
	list := []workload{w}
	for _, u := range unsourced {
		for _, x := range []float64{u.low, u.high} {
			other := w
			if u.times {
				x *= *u.of(&w)
			}
			*u.of(&other) = x
			if !known[u.name] {
				list = append(list, other)
			}
		}
	}
	return list
}

// rates are those of the busiest minute.
func (w workload) rates() rates {
	each := w.Members * w.Peak / day
	events := w.Events * each
	return rates{
		Reads: w.Reads * each, Uploads: w.Uploads * each, Changes: w.Changes * each, SweepSets: w.Members / (w.SweepDays * day),
		Recipients: events * w.Recipients, Deliveries: events * w.Recipients * w.Devices,
	}
}

// need is what a site needs, at its peak.
type need struct {
	workload workload
	costs    costs
	rates    rates
	contacts float64 // of a member, in the mean
	told     float64 // updates of sets for uploads, a second
	claim    float64 // tasks in a claim
	inCall   float64 // sets in a call of the script that updates them

	// What it takes, a second, by what for.
	site, process, reads, sweep, tasks, fanOut, push cost

	processes float64 // of activityd, one on each host
	sets      float64
	setBytes  float64 // of all sets
	nodes     float64 // masters
	commits   float64
	siteBytes float64
	pages     float64 // that MySQL reads from its disk, a second
}

// total is what all servers take in a second.
func (n need) total() cost {
	var sum cost
	for _, c := range []cost{n.site, n.process, n.reads, n.sweep, n.tasks, n.fanOut, n.push} {
		sum = sum.plus(c, 1)
	}
	return sum
}

// compute returns what a workload needs.
func compute(c costs, w workload) need {
	n := n0(c, w, w.rates())
	n.processes = 2
	for range 50 { // the numbers of processes and masters depend on what they take, and that a little on them
		before := n.masters()
		n = n.perSecond(n.processes)
		next := max(2, math.Ceil(n.total().Activityd/1e6/(w.HostCores*w.Headroom)))
		inCall := n.setsOfCall()
		if next <= n.processes && inCall >= n.inCall && n.masters() <= before {
			break
		}
		n.processes, n.inCall = max(next, n.processes), min(inCall, n.inCall)
	}
	return n
}

// setsOfCall is how many sets a call of the script updates: those of a page of followers that lie
// on one master. With more masters calls are smaller, and so there must be more masters.
func (n need) setsOfCall() float64 {
	if n.rates.Uploads == 0 {
		return setsInCall
	}
	page := min(followersInAPage, n.told/n.rates.Uploads)
	return min(setsInCall, max(1, page/n.masters()))
}

// toldCost is what it takes to update a set.
func (n need) toldCost() cost {
	told := n.costs.Told.plus(n.costs.ToldCall, 1/n.inCall-1./setsInCall)
	if n.masters() > 1 {
		told.Activityd *= n.costs.ClusterTold
		told.Redis *= n.costs.ClusterTold
	}
	return told
}

// n0 returns a need with what does not depend on the number of processes: memory, and updates of
// sets.
func n0(c costs, w workload, r rates) need {
	n := need{workload: w, costs: c, rates: r, contacts: w.contacts(), inCall: setsInCall}
	sizes := w.setSizes()
	n.sets = w.Members * w.Materialized * (1 - sizes[0])
	for size, share := range sizes[1:] {
		n.setBytes += w.Members * w.Materialized * share * (c.SetBytes[size+1] + c.KeyBytes)
	}
	n.nodes = 1
	if most := w.ForkMillis / c.ForkMillis * 1e9; n.setBytes > most {
		n.nodes = max(3, math.Ceil(n.setBytes/most))
	}
	n.siteBytes = w.Members * (n.contacts*w.ContactBytes + w.Photos*w.PhotoBytes + w.MemberBytes)
	n.told = r.Uploads * w.followersOfUpload()
	return n
}

// Pages that a read touches, entries of the index of followers in such a page, and how many
// followers a fan-out reads and writes at once.
const (
	pagesOfRead      = 6
	entriesInAPage   = 400
	followersInAPage = 2500
)

// perSecond returns the need with what so many processes take.
func (n need) perSecond(processes float64) need {
	c, w, r := n.costs, n.workload, n.rates
	n.site = c.SiteChange.times(r.Changes).plus(c.SiteUpload, r.Uploads)
	n.process = c.Process.times(processes)
	n.reads = c.Read.times(r.Reads)
	n.sweep = c.Swept.plus(c.RefillContact, n.contacts-c.Contacts).atLeastZero().times(r.SweepSets)

	enqueued := r.Changes + r.Uploads
	n.claim = min(256, 1+enqueued/processes*w.ClaimMillis/1e3)
	of := func(alone, batched cost) cost { return batched.plus(alone.plus(batched, -1), 1/n.claim) }
	worked := of(c.ChangeAlone, c.ChangeBatched).times(r.Changes).plus(of(c.UploadAlone, c.UploadBatched), r.Uploads)
	n.tasks = worked.plus(c.Enqueue, enqueued)

	n.fanOut = n.toldCost().times(n.told)
	n.push = c.Target.times(r.Recipients).plus(c.Deliver, r.Deliveries)

	// A claim and an end commit; so do, for push, a page of targets and a batch of messages.
	const pushBatch = 100
	n.commits = enqueued + 2*enqueued/n.claim + 2*processes + 4*(r.Recipients+r.Deliveries)/pushBatch
	cold := max(0, 1-w.MySQLMemory/n.siteBytes)
	n.pages = cold * (r.Reads*pagesOfRead + r.Uploads + n.told/entriesInAPage + r.Changes*pagesOfRead + r.Recipients*pagesOfRead)
	return n
}

// masters is how many Redis masters there must be, for their memory and their CPU.
func (n need) masters() float64 {
	cores := math.Ceil(n.total().Redis / 1e6 / n.workload.Headroom)
	if n.nodes == 1 && cores <= 1 {
		return 1
	}
	return max(3, n.nodes, cores)
}

// redisMemory is the memory of all nodes, replicas included.
func (n need) redisMemory() float64 {
	w := n.workload
	return (n.setBytes*w.Fragmentation + n.masters()*w.NodeBytes) * (1 + w.Replicas)
}

// refill is what it costs to read the set of a member in the mean.
func (n need) refill() cost {
	c := n.costs.Refill.plus(n.costs.RefillContact, n.contacts)
	c.MySQL *= max(1, n.costs.LargeRefill)
	return c
}

// rebuildWorkers is how many refill at once when a node was lost.
const rebuildWorkers = 4

// listedMicros is what it takes one process to list a member, of activityd and MySQL together,
// and to compute whether its set lay on a lost node.
const listedMicros = 0.5

// lookedMicros is what it takes at most to look whether a set is missing: what activityd and
// Redis take for one that is swept.
func (n need) lookedMicros() float64 { return n.costs.Swept.Activityd + n.costs.Swept.Redis }

// rebuild is how many seconds it takes to make the sets of so many masters again: all members
// are listed, and rebuildWorkers at once look at those whose sets may be lost.
func (n need) rebuild(masters float64) float64 {
	c := n.refill()
	refills := n.sets / n.masters() * masters * (n.lookedMicros() + c.Activityd + c.MySQL + c.Redis) / rebuildWorkers
	return (n.workload.Members*listedMicros + refills) / 1e6
}

// fanOutSeconds is how long one fan-out to so many followers takes. Its parts run one after the
// other: in each, activityd, MySQL and Redis wait for one another.
func (n need) fanOutSeconds(followers float64) float64 {
	told, task := n.toldCost(), n.costs.UploadAlone
	const part = 20_000
	return (followers*(told.Activityd+told.Redis+told.MySQL) + math.Ceil(followers/part)*(task.Activityd+task.MySQL+task.Redis)) / 1e6
}

// primaries is how many MySQL primaries there must be, of which each has a part of the site.
func (n need) primaries() float64 {
	most := 0.0
	for _, l := range limits() {
		if l.of == onPrimary {
			most = max(most, l.used(n))
		}
	}
	return max(1, math.Ceil(most))
}

// limit is something of which a site has one, or which is bounded, and that grows with its members.
type limit struct {
	name   string
	of     string             // what it is a limit of, where the site is as it is
	used   func(need) float64 // of 1
	remedy string
}

// What a site has one of.
const (
	onPrimary = "MySQL primary"
	onCluster = "Redis Cluster"
	elsewhere = "" // it bounds a site that is made otherwise, or does not bound it
)

// limits are in no order.
func limits() []limit {
	primary := func(n need) float64 { return n.workload.Headroom * n.workload.MySQLCores * 1e6 }
	commits := func(n need) float64 { return n.workload.Headroom * n.workload.MySQLCommits }
	return []limit{
		{"CPU of the MySQL primary", onPrimary, func(n need) float64 { return n.total().MySQL / primary(n) }, "shards by owner"},
		{"commits on the MySQL primary", onPrimary, func(n need) float64 { return n.commits / commits(n) }, "faster disks; then shards by owner"},
		{"the site's tables on one disk", onPrimary, func(n need) float64 { return n.siteBytes / n.workload.MySQLDisk }, "shards by owner"},
		{
			"pages that MySQL reads from its disk, at worst", onPrimary, func(n need) float64 { return n.pages / (n.workload.MySQLPages * n.workload.Headroom) },
			"more memory; then shards by owner",
		},
		{
			"network of the MySQL primary", onPrimary, func(n need) float64 {
				return n.total().Counts.MySQLBytes * 8 / (n.workload.NetworkBits * n.workload.Headroom)
			}, "shards by owner",
		},
		{
			"connections to the MySQL primary", onPrimary, func(n need) float64 { return n.processes * n.workload.Conns / n.workload.MySQLConns },
			"fewer for each process (`--mysql-connections`), larger hosts",
		},
		{
			"nodes of one Redis Cluster", onCluster, func(n need) float64 { return n.masters() * (1 + n.workload.Replicas) / n.workload.ClusterNodes },
			"`--materialize=active`, larger nodes that do not save; then a cluster for each shard",
		},
		{
			"a minute for the fan-out of the most followed member", elsewhere, func(n need) float64 { return n.fanOutSeconds(n.workload.mostFollowers()) / 60 },
			"none is needed: other fan-outs do not wait for it",
		},
		{"a round of the sweep in 30 days at 50 sets a second", elsewhere, func(n need) float64 { return n.workload.Members / 50 / (30 * day) }, "raise `ACTIVITYD_AUDIT_SWEEP_RATE`"},
	}
}

// reach returns for how many members a limit is enough, other things being as in the workload.
func (l limit) reach(c costs, w workload) float64 {
	low, high := 1e3, 1e13
	at := func(members float64) bool {
		w.Members = members
		return l.used(compute(c, w)) <= 1
	}
	for range 24 { // three digits of it are shown
		if middle := math.Sqrt(low * high); at(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}
