(* Blocked axes: an axis of n rows cut into cdiv n b tiles of b rows, the last
   one ragged.  rows n b i is the real number of rows of tile i, so that sums
   over tiles count rows and never multiply ceilings. *)
From Coq Require Import Arith Lia List.
Import ListNotations.

Definition cdiv n b := (n + b - 1) / b.
Definition rows n b i := Nat.min b (n - i * b).

Fixpoint sum (n : nat) (f : nat -> nat) : nat :=
  match n with 0 => 0 | S n' => sum n' f + f n' end.

Lemma cdiv_lower n b : 0 < b -> n <= cdiv n b * b.
Proof.
  intros Hb. unfold cdiv.
  pose proof (Nat.div_mod (n + b - 1) b ltac:(lia)) as E.
  pose proof (Nat.mod_upper_bound (n + b - 1) b ltac:(lia)) as U. nia.
Qed.

Lemma cdiv_upper n b : 0 < b -> cdiv n b * b <= n + b - 1.
Proof.
  intros Hb. unfold cdiv.
  pose proof (Nat.div_mod (n + b - 1) b ltac:(lia)) as E. nia.
Qed.

Lemma cdiv_one n : cdiv n 1 = n.
Proof. unfold cdiv. rewrite Nat.div_1_r. lia. Qed.

Lemma sum_ext n f g : (forall i, i < n -> f i = g i) -> sum n f = sum n g.
Proof. induction n; intros H; cbn; [ reflexivity | rewrite IHn, H; auto ]. Qed.

Lemma sum_plus n f g : sum n (fun i => f i + g i) = sum n f + sum n g.
Proof. induction n; cbn; lia. Qed.

Lemma sum_times_r n f c : sum n (fun i => f i * c) = sum n f * c.
Proof. induction n; cbn; lia. Qed.

Lemma sum_const n c : sum n (fun _ => c) = n * c.
Proof. induction n; cbn; lia. Qed.

Lemma list_sum_seq n f : list_sum (map f (seq 0 n)) = sum n f.
Proof.
  induction n; [ reflexivity | ].
  rewrite seq_S, map_app, list_sum_app, IHn. cbn. lia.
Qed.

(* The first t tiles hold min n (t b) rows, and all the tiles hold n. *)
Lemma sum_rows_upto n b t : sum t (rows n b) = Nat.min n (t * b).
Proof. induction t; cbn [sum]; [ lia | rewrite IHt; unfold rows; lia ]. Qed.

Lemma sum_rows n b : 0 < b -> sum (cdiv n b) (rows n b) = n.
Proof.
  intros Hb. rewrite sum_rows_upto. pose proof (cdiv_lower n b Hb). lia.
Qed.

Lemma rows_le n b i : rows n b i <= b.
Proof. unfold rows. lia. Qed.

(* The tiles as lists of row numbers. *)
Definition tile n b i := seq (i * b) (rows n b i).
Definition tiles n b := map (tile n b) (seq 0 (cdiv n b)).

Lemma concat_tiles_upto n b t :
  concat (map (tile n b) (seq 0 t)) = seq 0 (Nat.min n (t * b)).
Proof.
  induction t as [| t IH]; [ now rewrite Nat.min_0_r | ].
  rewrite seq_S, map_app, concat_app, IH. cbn. rewrite app_nil_r.
  unfold tile, rows.
  destruct (Nat.le_gt_cases (t * b) n) as [H | H].
  - rewrite (Nat.min_r n (t * b)) by lia.
    replace (Nat.min n (b + t * b)) with (t * b + Nat.min b (n - t * b)) by lia.
    now rewrite seq_app.
  - replace (Nat.min b (n - t * b)) with 0 by lia.
    rewrite app_nil_r. f_equal. lia.
Qed.

Lemma concat_tiles n b : 0 < b -> concat (tiles n b) = seq 0 n.
Proof.
  intros Hb. unfold tiles. rewrite concat_tiles_upto.
  f_equal. pose proof (cdiv_lower n b Hb). lia.
Qed.
