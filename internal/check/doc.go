// Package check compares what activityd says with what else is known, and judges the differences. It changes nothing.
//
// [Against] compares the read with a site's own statement. For each member, the statement and the walk, which is
// the definition of the answer from MySQL alone, run in one transaction that sees one instant. So each difference is a fact. What the tables, or
// the views, say of the photos in both answers, at that instant, decides its [Class].
package check
