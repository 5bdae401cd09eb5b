export ACTIVITYD_MYSQL_DSN='activityd:secret@tcp(127.0.0.1:3306)/site'
export ACTIVITYD_REDIS_URL='redis://127.0.0.1:6379/0'
activityd schema --apply      # makes the tables that are missing, and says whether all will do
activityd backfill            # builds the sets of the members that there are
activityd serve               # answers at 127.0.0.1:8080, and works on tasks
