(* Theorem (c), second part: the traffic of FlashAttention lies between
   c1 N^2 d^2 / M and c2 N^2 d^2 / M, with the constants written out.

   Hypotheses: nq = nk = N, 0 < d, and the range of M stated; M and the traffic
   are in words.  Divisions are multiplied out: "c1 N^2 d^2 <= Q M".
   For each choice of tiles there is a pair of tight forms, which give the
   leading constant exactly, and then the sandwich.

     tiles                                    c1  c2  leading  range
     flash1, B_c = ceil(M/4d), B_r = min(B_c, d)   6  40  12   4d <= M <= N d
     flash1, B_r = 1, B_c = (M - 2d - 2)/(2d + 1)  6  66   6   8d + 6 <= M <= N d
     flash2, B_r = ceil(M/4d), B_c = min(B_r, d)   4  13   8   4d <= M <= N d
     flash2, B_c = 1, B_r = (M - 2d)/(2d + 3)      4  30   4   8d + 4 <= M <= N d

   The second and the fourth always fit in M; the first fits from 8 d^2 + 20 d on
   and not always below (all proved).  Source: FA1 Theorem 2; constants derived. *)
From Coq Require Import Arith Lia.
From iosim Require Import Tiles Traffic.

(* The block of the printed tile rule: b = ceil(M/4d). *)
Lemma printed_block d M : 0 < d -> let b := cdiv M (4 * d) in
  M <= 4 * (b * d) /\ 4 * (b * d) <= M + 4 * d - 1.
Proof.
  intros Hd b. unfold b.
  pose proof (cdiv_lower M (4 * d) ltac:(lia)).
  pose proof (cdiv_upper M (4 * d) ltac:(lia)). lia.
Qed.

Lemma printed_block_positive d M : 0 < d -> 0 < M -> 0 < cdiv M (4 * d).
Proof.
  intros Hd HM. pose proof (printed_block d M Hd) as [H _].
  destruct (cdiv M (4 * d)); lia.
Qed.

(* How often an axis of N rows is cut: t = ceil(N/b) for that block. *)
Lemma printed_count N d M : 0 < d -> 0 < M ->
  let t := cdiv N (cdiv M (4 * d)) in
  4 * N * d <= t * (M + 4 * d) /\ t * M <= 4 * N * d + M.
Proof.
  intros Hd HM t. unfold t.
  pose proof (printed_block_positive d M Hd HM) as Hb.
  pose proof (printed_block d M Hd) as [B1 B2].
  set (b := cdiv M (4 * d)) in *. clearbody b.
  pose proof (cdiv_lower N b Hb) as T1. pose proof (cdiv_upper N b Hb) as T2.
  set (u := cdiv N b) in *. clearbody u.
  split.
  - assert (4 * d * N <= 4 * d * (u * b)) by (apply Nat.mul_le_mono_l; lia).
    assert (u * (4 * (b * d)) <= u * (M + 4 * d)) by (apply Nat.mul_le_mono_l; lia).
    lia.
  - assert (u * M <= u * (4 * (b * d))) by (apply Nat.mul_le_mono_l; lia).
    assert (4 * d * (u * b + 1) <= 4 * d * (N + b)) by (apply Nat.mul_le_mono_l; lia).
    lia.
Qed.

(* A block b with b w <= M - r < (b + 1) w, as the largest tile that fits has. *)
Lemma largest_count N w r M : 0 < w -> r + w <= M ->
  let b := (M - r) / w in let t := cdiv N b in
  0 < b /\ b * w <= M - r /\ N * w <= t * (M - r) /\ t * (M - r - w) <= N * w + M.
Proof.
  intros Hw HM b t. unfold t.
  pose proof (Nat.div_mod (M - r) w ltac:(lia)) as E. fold b in E.
  pose proof (Nat.mod_upper_bound (M - r) w ltac:(lia)) as U.
  set (rest := (M - r) mod w) in *. clearbody rest b.
  assert (Hb : 0 < b) by (destruct b; lia).
  pose proof (cdiv_lower N b Hb) as T1. pose proof (cdiv_upper N b Hb) as T2.
  set (u := cdiv N b) in *. clearbody u.
  assert (B : b * w <= M - r) by lia.
  split; [ exact Hb | split; [ exact B | split ] ].
  - assert (N * w <= u * b * w) by (apply Nat.mul_le_mono_r; lia).
    assert (u * (b * w) <= u * (M - r)) by (apply Nat.mul_le_mono_l; lia). lia.
  - assert (u * (M - r - w) <= u * (b * w)) by (apply Nat.mul_le_mono_l; lia).
    assert (u * b * w <= (N + b) * w) by (apply Nat.mul_le_mono_r; lia). lia.
Qed.

(* The same block when it has at least two rows and fits twice into the axis. *)
Lemma largest_count_crude N w r M : 0 < w -> r + 2 * w <= M ->
  let b := (M - r) / w in let t := cdiv N b in
  2 * b <= N -> 4 * (t * M) <= 3 * N * (r + 3 * w).
Proof.
  intros Hw HM b t HN. unfold t.
  pose proof (Nat.div_mod (M - r) w ltac:(lia)) as E. fold b in E.
  pose proof (Nat.mod_upper_bound (M - r) w ltac:(lia)) as U.
  set (rest := (M - r) mod w) in *. clearbody rest b.
  assert (Hb : 2 <= b) by (destruct b as [| [| b]]; lia).
  pose proof (cdiv_upper N b ltac:(lia)) as T.
  set (u := cdiv N b) in *. clearbody u.
  assert (2 * M <= b * r + 3 * (b * w)).
  { assert (2 * r <= b * r) by (apply Nat.mul_le_mono_r; lia).
    assert (2 * w <= b * w) by (apply Nat.mul_le_mono_r; lia). lia. }
  assert (u * (2 * M) <= u * (b * r + 3 * (b * w))) by (apply Nat.mul_le_mono_l; lia).
  assert (2 * (u * b) * (r + 3 * w) <= 3 * N * (r + 3 * w)) by (apply Nat.mul_le_mono_r; lia).
  lia.
Qed.

(* FlashAttention-1, printed tiles *)

Definition flash1_printed N d M := let bc := cdiv M (4 * d) in
  traffic (flash1 N N d (Nat.min bc d) bc).

Theorem flash1_printed_tight N d M : 0 < d -> 0 < M ->
  12 * N * N * d * d <= flash1_printed N d M * (M + 4 * d) /\
  flash1_printed N d M * M
  <= 12 * N * N * d * d + 16 * N * N * d + 6 * M * N * (d + 1).
Proof.
  intros Hd HM. unfold flash1_printed. cbn zeta.
  pose proof (printed_block_positive d M Hd HM).
  rewrite flash1_traffic by lia.
  pose proof (printed_count N d M Hd HM) as [L U].
  set (t := cdiv N (cdiv M (4 * d))) in *. clearbody t.
  apply (Nat.mul_le_mono_l _ _ (N * (3 * d))) in L.
  apply (Nat.mul_le_mono_l _ _ (N * (3 * d + 4))) in U. split; lia.
Qed.

Theorem flash1_printed_sandwich N d M : 0 < d -> 4 * d <= M <= N * d ->
  6 * N * N * d * d <= flash1_printed N d M * M <= 40 * N * N * d * d.
Proof.
  intros Hd HM. destruct (flash1_printed_tight N d M Hd ltac:(lia)) as [L U].
  set (q := flash1_printed N d M) in *. clearbody q. split.
  - assert (q * (M + 4 * d) <= q * (M + M)) by (apply Nat.mul_le_mono_l; lia). lia.
  - assert (N * N * d * 1 <= N * N * d * d) by (apply Nat.mul_le_mono_l; lia).
    assert (M * (N * (d + 1)) <= N * d * (N * (d + 1))) by (apply Nat.mul_le_mono_r; lia).
    lia.
Qed.

(* FlashAttention-1 at its best tiles: one query row, as many key rows as fit *)

Definition flash1_best_bc d M := (M - (2 * d + 2)) / (2 * d + 1).
Definition flash1_best N d M := traffic (flash1 N N d 1 (flash1_best_bc d M)).

Theorem flash1_best_fits N d M : 4 * d + 3 <= M ->
  fits M (flash1 N N d 1 (flash1_best_bc d M)).
Proof.
  intros HM. apply flash1_fits. unfold flash1_best_bc.
  destruct (largest_count N (2 * d + 1) (2 * d + 2) M) as (_ & H & _); lia.
Qed.

Theorem flash1_best_tight N d M : 4 * d + 3 <= M ->
  6 * N * N * d * d <= flash1_best N d M * (M - (2 * d + 2)) /\
  flash1_best N d M * (M - (4 * d + 3))
  <= 6 * N * N * d * d + 11 * N * N * d + 4 * N * N + 6 * M * N * (d + 1).
Proof.
  intros HM. unfold flash1_best, flash1_best_bc.
  destruct (largest_count N (2 * d + 1) (2 * d + 2) M) as (Hb & _ & L & U); [ lia | lia | ].
  rewrite flash1_traffic by lia.
  set (t := cdiv N _) in *. clearbody t.
  replace (M - (2 * d + 2) - (2 * d + 1)) with (M - (4 * d + 3)) in U by lia.
  apply (Nat.mul_le_mono_l _ _ (N * (3 * d))) in L.
  apply (Nat.mul_le_mono_l _ _ (N * (3 * d + 4))) in U.
  assert ((N * (d + 2) + 2 * N * d) * (M - (4 * d + 3)) <= (N * (d + 2) + 2 * N * d) * M)
    by (apply Nat.mul_le_mono_l; lia).
  set (x := M - (4 * d + 3)) in *. set (y := M - _) in *. clearbody x y.
  split; lia.
Qed.

Theorem flash1_best_sandwich N d M : 0 < d -> 8 * d + 6 <= M <= N * d ->
  6 * N * N * d * d <= flash1_best N d M * M <= 66 * N * N * d * d.
Proof.
  intros Hd HM. destruct (flash1_best_tight N d M ltac:(lia)) as [L U].
  set (q := flash1_best N d M) in *. clearbody q. split.
  - assert (q * (M - (2 * d + 2)) <= q * M) by (apply Nat.mul_le_mono_l; lia). lia.
  - assert (q * M <= q * (2 * (M - (4 * d + 3)))) by (apply Nat.mul_le_mono_l; lia).
    assert (N * N * d * 1 <= N * N * d * d) by (apply Nat.mul_le_mono_l; lia).
    assert (N * N * 1 <= N * N * d) by (apply Nat.mul_le_mono_l; lia).
    assert (M * (N * (d + 1)) <= N * d * (N * (d + 1))) by (apply Nat.mul_le_mono_r; lia).
    lia.
Qed.

(* FlashAttention-2, the same tile rule mirrored *)

Definition flash2_printed N d M := let br := cdiv M (4 * d) in
  traffic (flash2 N N d br (Nat.min br d)).

Theorem flash2_printed_tight N d M : 0 < d -> 0 < M ->
  8 * N * N * d * d <= flash2_printed N d M * (M + 4 * d) /\
  flash2_printed N d M * M <= 8 * N * N * d * d + M * N * (4 * d + 1).
Proof.
  intros Hd HM. unfold flash2_printed. cbn zeta.
  pose proof (printed_block_positive d M Hd HM).
  rewrite flash2_traffic by lia.
  pose proof (printed_count N d M Hd HM) as [L U].
  set (t := cdiv N (cdiv M (4 * d))) in *. clearbody t.
  apply (Nat.mul_le_mono_l _ _ (N * (2 * d))) in L.
  apply (Nat.mul_le_mono_l _ _ (N * (2 * d))) in U. split; lia.
Qed.

Theorem flash2_printed_sandwich N d M : 0 < d -> 4 * d <= M <= N * d ->
  4 * N * N * d * d <= flash2_printed N d M * M <= 13 * N * N * d * d.
Proof.
  intros Hd HM. destruct (flash2_printed_tight N d M Hd ltac:(lia)) as [L U].
  set (q := flash2_printed N d M) in *. clearbody q. split.
  - assert (q * (M + 4 * d) <= q * (M + M)) by (apply Nat.mul_le_mono_l; lia). lia.
  - assert (N * N * d * 1 <= N * N * d * d) by (apply Nat.mul_le_mono_l; lia).
    assert (M * (N * (4 * d + 1)) <= N * d * (N * (4 * d + 1)))
      by (apply Nat.mul_le_mono_r; lia).
    lia.
Qed.

(* FlashAttention-2 at its best tiles: one key row, as many query rows as fit *)

Definition flash2_best_br d M := (M - 2 * d) / (2 * d + 3).
Definition flash2_best N d M := traffic (flash2 N N d (flash2_best_br d M) 1).

Theorem flash2_best_fits N d M : 4 * d + 3 <= M ->
  fits M (flash2 N N d (flash2_best_br d M) 1).
Proof.
  intros HM. apply flash2_fits. unfold flash2_best_br.
  destruct (largest_count N (2 * d + 3) (2 * d) M) as (_ & H & _); lia.
Qed.

Theorem flash2_best_tight N d M : 4 * d + 3 <= M ->
  4 * N * N * d * d <= flash2_best N d M * (M - 2 * d) /\
  flash2_best N d M * (M - (4 * d + 3))
  <= 4 * N * N * d * d + 6 * N * N * d + M * N * (4 * d + 1).
Proof.
  intros HM. unfold flash2_best, flash2_best_br.
  destruct (largest_count N (2 * d + 3) (2 * d) M) as (Hb & _ & L & U); [ lia | lia | ].
  rewrite flash2_traffic by lia.
  set (t := cdiv N _) in *. clearbody t.
  replace (M - 2 * d - (2 * d + 3)) with (M - (4 * d + 3)) in U by lia.
  apply (Nat.mul_le_mono_l _ _ (N * (2 * d))) in L.
  apply (Nat.mul_le_mono_l _ _ (N * (2 * d))) in U.
  assert ((2 * N * d + N) * (M - (4 * d + 3)) <= (2 * N * d + N) * M)
    by (apply Nat.mul_le_mono_l; lia).
  set (x := M - (4 * d + 3)) in *. set (y := M - _) in *. clearbody x y.
  split; lia.
Qed.

Theorem flash2_best_sandwich N d M : 0 < d -> 8 * d + 4 <= M <= N * d ->
  4 * N * N * d * d <= flash2_best N d M * M <= 30 * N * N * d * d.
Proof.
  intros Hd HM. split.
  - destruct (flash2_best_tight N d M ltac:(lia)) as [L _].
    set (q := flash2_best N d M) in *. clearbody q.
    assert (q * (M - 2 * d) <= q * M) by (apply Nat.mul_le_mono_l; lia). lia.
  - unfold flash2_best, flash2_best_br.
    pose proof (largest_count_crude N (2 * d + 3) (2 * d) M ltac:(lia) ltac:(lia)) as U.
    destruct (largest_count N (2 * d + 3) (2 * d) M) as (Hb & B & _ & _); [ lia | lia | ].
    cbn zeta in U. rewrite flash2_traffic by lia.
    set (b := (M - 2 * d) / (2 * d + 3)) in *. clearbody b.
    assert (HN : 2 * b <= N).
    { assert (d * (2 * b) <= d * N) by lia. apply Nat.mul_le_mono_pos_l in H; lia. }
    specialize (U HN). set (t := cdiv N b) in *. clearbody t.
    assert (HM2 : (2 * N * d + N) * M <= (2 * N * d + N) * (N * d))
      by (apply Nat.mul_le_mono_l; lia).
    apply (Nat.mul_le_mono_l _ _ (N * d)) in U.
    assert (N * N * d * 1 <= N * N * d * d) by (apply Nat.mul_le_mono_l; lia).
    lia.
Qed.

(* The printed tiles of Algorithm 1 fit from about 8 d^2 on, and not always below. *)
Theorem flash1_printed_fits N d M : 0 < d -> 8 * d * d + 20 * d <= M ->
  let bc := cdiv M (4 * d) in fits M (flash1 N N d (Nat.min bc d) bc).
Proof.
  intros Hd HM bc. apply flash1_fits. unfold bc.
  pose proof (printed_block d M Hd) as [_ B].
  set (b := cdiv M (4 * d)) in *. clearbody b.
  assert (Nat.min b d * b <= d * b) by (apply Nat.mul_le_mono_r; lia).
  assert (Nat.min b d * d <= d * d) by (apply Nat.mul_le_mono_r; lia).
  lia.
Qed.

Example flash1_printed_too_large : cdiv 16 (4 * 4) = 1 /\ ~ fits 16 (flash1 4 4 4 1 1).
Proof. split; [ reflexivity | intros H; vm_compute in H; discriminate H ]. Qed.
