// Jobs of River that do nothing, for `roq bench --jobs`.
//
//	river submit URL          makes the tables; submits as many jobs as each line of its input says
//	river work URL NUMBER     runs jobs, so many at once
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const block = 500

type nothing struct {
	Number int `json:"number"`
}

func (nothing) Kind() string { return "nothing" }

type worker struct {
	river.WorkerDefaults[nothing]
}

func (worker) Work(context.Context, *river.Job[nothing]) error { return nil }

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Args[2])
	check(err)
	driver := riverpgxv5.New(pool)
	if os.Args[1] == "work" {
		atOnce, err := strconv.Atoi(os.Args[3])
		check(err)
		workers := river.NewWorkers()
		river.AddWorker(workers, worker{})
		client, err := river.NewClient(driver, &river.Config{
			// 100 ms between fetches of as many jobs as may run at once would be all that counts.
			FetchCooldown: time.Millisecond,
			Logger:        slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: atOnce}},
			Workers:       workers,
		})
		check(err)
		check(client.Start(ctx))
		select {}
	}
	migrator, err := rivermigrate.New(driver, nil)
	check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	check(err)
	client, err := river.NewClient(driver, &river.Config{})
	check(err)
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println("submitted") {
		left, err := strconv.Atoi(lines.Text())
		check(err)
		for ; left > 0; left -= block {
			few := make([]river.InsertManyParams, min(left, block))
			for number := range few {
				few[number].Args = nothing{number}
			}
			_, err := client.InsertManyFast(ctx, few)
			check(err)
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
