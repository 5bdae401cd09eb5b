package index

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
)

// settingsKey holds what the sets were built with; see [Settings].
const settingsKey = "activityd_settings"

// epochKey holds a random token for as long as nothing is lost; see [Generation].
const epochKey = "activityd_epoch"

// materializeKey holds whose sets are kept; see [Ledger.StoreMaterialize].
const materializeKey = "activityd_materialize"

// userKeyPrefix begins the keys of the sets and of those that [Index.Probe] makes.
const userKeyPrefix = "user_"

// UserKey is the key of a user's set.
func UserKey(user member.ID) string { return userKeyPrefix + user.String() }

// guardKey is the key of the guard of the set with the given key. The braces make the
// name of the set the part that a cluster hashes, so both lie in one slot and one script
// may touch both.
func guardKey(set string) string { return "guard_{" + set + "}" }

// probeKey is the key of one of the sets that [Index.Probe] makes and deletes at
// once. It begins like that of a user's set, so that the same rules of an ACL hold
// for both, and no id can be read from it. Without braces, the keys spread over the
// nodes of a cluster.
func probeKey(i int) string { return fmt.Sprintf("%sprobe%d", userKeyPrefix, i) }

// The fence of the process that sweeps for the audit, and where that sweep is. They share
// a slot, so that one script may touch both.
const (
	sweepFenceKey = "activityd_{sweep}_fence"
	sweepStateKey = "activityd_{sweep}_state"
)

// markKey is the key of the only mark, or the beginning of the keys of several.
const markKey = "activityd_mark"

// markServerKey holds the run of the server that was seen last, markLostKey when the
// last loss was noticed. The braces keep them in one slot, for one script.
const (
	markServerKey = "activityd_{mark}_server"
	markLostKey   = "activityd_{mark}_lost"
)

// markKeyOf is the key of one of several marks. The braces make the number the part
// that a cluster hashes, so that they spread over its nodes.
func markKeyOf(i int) string { return fmt.Sprintf("%s_{%d}", markKey, i) }

// markKeys are the keys of all marks: one, or several for a cluster.
func markKeys(client redis.UniversalClient) []string {
	if _, isCluster := client.(*redis.ClusterClient); !isCluster {
		return []string{markKey}
	}
	keys := make([]string, clusterMarks)
	for i := range keys {
		keys[i] = markKeyOf(i)
	}
	return keys
}

// ownKeys are the keys that are neither sets nor guards.
func ownKeys(client redis.UniversalClient) []string {
	return append(markKeys(client), settingsKey, epochKey, materializeKey, sweepFenceKey, sweepStateKey, markServerKey, markLostKey)
}
